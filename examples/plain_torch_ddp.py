"""The validation of train_digits.py without Lightning, on any number of processes.

    torchrun --nproc-per-node 2 examples/plain_torch_ddp.py
    python examples/plain_torch_ddp.py

Training leaves samples over so that the processes stay in step. Validation sees each sample once, so the counts, the
epoch that is kept and the rule do not depend on the number of processes, as long as it divides the batch of 32.
"""

from __future__ import annotations

import argparse
import copy
import os

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from train_digits import digits

import imbtorch


def main() -> None:
    args = arguments()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        torch.distributed.init_process_group("gloo")
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(args.seed)
    train, val, test = digits(args.imbalance, args.seed)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = DistributedDataParallel(net) if world > 1 else net
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-2)
    shuffled = DistributedSampler(train, num_replicas=world, rank=rank, seed=args.seed, drop_last=True)
    train_loader = DataLoader(train, batch_size=max(1, 32 // world), sampler=shuffled, drop_last=True)
    val = TensorDataset(*val.tensors, torch.arange(len(val)))
    val_loader = DataLoader(val, batch_sampler=imbtorch.ExactBatchSampler(SequentialSampler(val), batch_size=256))
    report = imbtorch.ImbalanceReport("multiclass", num_classes=10)
    sweep = imbtorch.LogitAdjustmentSweep("balanced_accuracy", torch.bincount(train.tensors[1]), logits=True)

    best, kept, kept_epoch = -1.0, net.state_dict(), -1
    for epoch in range(args.epochs):
        shuffled.set_epoch(epoch)
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        iam, samples = validate(net, val_loader, report, sweep)
        if iam > best:  # the same on every process, since all of them hold the same sum
            best, kept, kept_epoch = iam, copy.deepcopy(net.state_dict()), epoch
        if rank == 0:
            print(f"epoch {epoch:2d}  val_iam {iam:+.4f}  of {samples} samples on {world} process(es)")

    if rank == 0:  # table() and functions of counts never communicate, so one process alone may call them
        print(f"\nlast epoch\n{report.table()}\n{report.result().signature}\n{sweep.rule}")
        net.load_state_dict(kept)
        images, labels = test.tensors
        counts = imbtorch.confusion_matrix(net.eval()(images), labels, "multiclass", num_classes=10)
        print(f"\nkept epoch {kept_epoch}: IAM {imbtorch.imbalance_accuracy(counts):+.4f} on the balanced test set")
    if world > 1:
        torch.distributed.barrier()  # nobody hangs up on rank zero, which has more to do
        del model, optimizer  # the wrapper holds the process group as well
        torch.distributed.destroy_process_group()


@torch.inference_mode()
def validate(
    net: nn.Module,
    loader: DataLoader[Tensor],
    report: imbtorch.ImbalanceReport,
    sweep: imbtorch.LogitAdjustmentSweep,
) -> tuple[float, int]:
    """Return the IAM of one epoch over all processes, and the number of samples that were counted."""
    net.eval()  # not the DDP wrapper: without gradients there is nothing to synchronise
    report.reset()
    sweep.reset()
    for images, labels, index in loader:
        logits = net(images)
        report.update(logits, labels)
        sweep.update(logits, labels, cluster=index)  # ids of samples: the rule is the same on any number of processes
    sweep.compute()
    values = report.compute()  # one sum over all processes; the first epoch also compares their settings
    return float(values["iam"]), int(report.result().counts.sum())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--imbalance", type=float, default=20.0, help="images of a common digit for one of a rare one")
    return parser.parse_args()


if __name__ == "__main__":
    main()
