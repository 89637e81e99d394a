"""optimizers/*: thirty updates of a tensor: Lion by bitsandbytes, and AdamW with bitsandbytes' 8-bit numbers for its moments."""
import math

import bitsandbytes as bnb
import torch
from bitsandbytes.functional import create_dynamic_map

from tiny import case_folder, from_8bit, generator, nearest_8bit, write_golden

COUNT, STEPS = 5000, 30  # twenty blocks, the last one not full


class Moment:
    """fp32 values, of which the nearest 8-bit numbers and a scale for each block are kept."""

    def __init__(self, signed):
        self.values, self.numbers = torch.zeros(COUNT), create_dynamic_map(signed=signed)

    def keep(self, values):
        self.values = from_8bit(*nearest_8bit(values, self.numbers), self.numbers)


class AdamW8bit:
    """bitsandbytes/backends/cpu/ops.py, _optimizer_update_8bit_blockwise_cpu"""

    def __init__(self, parameters, lr, betas, eps, weight_decay):
        (self.parameter,), self.lr, self.betas, self.eps, self.decay = parameters, lr, betas, eps, weight_decay
        self.average, self.square, self.steps = Moment(True), Moment(False), 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        gradient = self.parameter.grad
        average = self.average.values * self.betas[0] + gradient * (1 - self.betas[0])
        square = self.square.values * self.betas[1] + gradient * gradient * (1 - self.betas[1])
        self.parameter.mul_(1 - self.lr * self.decay)
        self.parameter.addcdiv_(average, square.sqrt() / math.sqrt(1 - self.betas[1] ** self.steps) + self.eps, value=-self.lr / (1 - self.betas[0] ** self.steps))
        self.average.keep(average)
        self.square.keep(square)


CASES = {"adamw8bit": (AdamW8bit, dict(lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)),
         "lion": (bnb.optim.Lion, dict(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1))}


def main():
    start = torch.randn(COUNT, generator=generator("start"))
    gradients = torch.stack([torch.randn(COUNT, generator=generator("gradient", step)) * 0.1 * (1 + step % 3) for step in range(STEPS)])
    tensors = {"start": start, "gradients": gradients}
    for name, (kind, options) in CASES.items():
        parameter = torch.nn.Parameter(start.clone())
        optimizer = kind([parameter], **options)
        for step, gradient in enumerate(gradients):
            parameter.grad = gradient.clone()
            optimizer.step()
            if step in (0, 4, STEPS - 1):
                tensors[f"{name}.after{step + 1}"] = parameter.detach().clone()
    write_golden(case_folder("optimizers"), tensors, {name: {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()} for name, (_, options) in CASES.items()})


if __name__ == "__main__":
    main()
