"""Where the requests of an online benchmark come from."""
