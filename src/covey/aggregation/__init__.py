"""How clients' updates become the next cluster models, and the sets that hide them."""
