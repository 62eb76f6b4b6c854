#!/usr/bin/env python3
"""Writes tests/fixtures/schedules.json: how many updates and warm-up updates transformers' Trainer makes of options, over a grid, and the
learning rates of its schedules.

Nothing is trained: Trainer.set_initial_training_values and TrainingArguments.get_warmup_steps are asked, and the scheduler that
create_scheduler makes is stepped. Usage: make_schedule_fixture.py [--out FILE]
"""

import argparse
import itertools
import json
import pathlib
import tempfile

import torch
from transformers import Trainer, TrainingArguments

WINDOWS = [1, 7, 10, 33]
BATCHES = [(1, 1), (2, 1), (3, 2), (8, 4)]  # a micro-step's windows, micro-steps of an update
EPOCHS = [0.01, 0.3, 0.5, 1, 1.1, 1.5, 2.7, 3]
WARMUPS = [0, 0.03, 0.1, 0.5, 0.999, 1, 2, 2.9, 50]
SCHEDULES = ["linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"]
RATED = [(0, 9), (0.1, 20), (3, 12), (1, 5), (7, 8)]  # warmup_steps, updates
LEARNING_RATE = 2e-3


def lengths(directory):
    for windows, (batch, accumulation), epochs in itertools.product(WINDOWS, BATCHES, EPOCHS):
        arguments = TrainingArguments(output_dir=directory, report_to="none", use_cpu=True, num_train_epochs=epochs,
                                      per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation)
        trainer = Trainer(model=torch.nn.Linear(1, 1), args=arguments, train_dataset=[{"x": i} for i in range(windows)])
        values = trainer.set_initial_training_values(arguments, trainer.get_train_dataloader())
        updates = values[-1]
        warmups = []
        for warmup in WARMUPS:
            arguments.warmup_steps = warmup
            warmups.append(arguments.get_warmup_steps(updates))
        yield {"windows": windows, "batch": batch, "accumulation": accumulation, "epochs": epochs, "updates": updates,
               "warmups": warmups}


def rates(directory):
    for schedule, (warmup, updates) in itertools.product(SCHEDULES, RATED):
        arguments = TrainingArguments(output_dir=directory, report_to="none", use_cpu=True, learning_rate=LEARNING_RATE,
                                      lr_scheduler_type=schedule, warmup_steps=warmup)
        trainer = Trainer(model=torch.nn.Linear(1, 1), args=arguments)
        optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=LEARNING_RATE)
        scheduler = trainer.create_scheduler(updates, optimizer)
        values = []
        for _ in range(updates):
            values.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        yield {"schedule": schedule, "warmup_steps": warmup, "updates": updates, "rates": values}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=pathlib.Path(__file__).parents[1] / "tests/fixtures/schedules.json", type=pathlib.Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as directory:
        length_rows, rate_rows = list(lengths(directory)), list(rates(directory))

    def listed(rows):
        return "[\n  " + ",\n  ".join(json.dumps(row) for row in rows) + "\n ]"

    out.write_text(f'{{"learning_rate": {LEARNING_RATE},\n "warmup_steps": {json.dumps(WARMUPS)},\n'
                   f' "lengths": {listed(length_rows)},\n "rates": {listed(rate_rows)}}}\n')


if __name__ == "__main__":
    main()
