"""Settings of all tests: one thread a process, so that parallel test processes do not fight over the cores."""

import torch

torch.set_num_threads(1)
