"""How facts are got: arms, statistics, FLOPs, memory, counters, ceilings of the machine."""
