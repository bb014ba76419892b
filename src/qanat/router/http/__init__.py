"""HTTP/1.1 of the router: a server for clients, pooled connections to engines, and the cut of event streams."""
