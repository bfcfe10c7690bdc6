"""FedAvg as other simulators write it; `benchmarks.speed` plays it beside covey's."""
