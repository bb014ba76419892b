"""Files that deploy a service, of every kind, read to facts with places."""
