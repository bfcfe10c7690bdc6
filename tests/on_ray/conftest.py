from on_ray.cluster import ray_cluster, ray_engine

__all__ = ["ray_cluster", "ray_engine"]
