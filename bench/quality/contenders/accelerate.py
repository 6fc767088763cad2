"""Accelerate: the plain script with the lines of its quick tour. It has no tuner."""

import torch
from accelerate import Accelerator
from race import Race


def train(race: Race) -> None:
    """At the plain script's rate."""
    accelerator, step = Accelerator(cpu=True), 0
    model, optimizer, loader = accelerator.prepare(
        race.model, torch.optim.AdamW(race.model.parameters(), lr=race.rate), race.loader()
    )
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss = race.work.loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            if race.look(model, step):
                return
