"""Engine cores on other hosts: the head's end, the hosts' end, and what they tell each other over TCP."""
