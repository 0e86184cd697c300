"""What the scripts that train small models share: the tokenizer, rows of text, the schedule and the loop with its checkpoints.

A loop without checkpoints that is given steps and one thread leaves the weights of its seed; so does one that was stopped and
taken up again at a checkpoint. Needs torch, transformers, tokenizers and numpy.
"""
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import numpy as np
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

END = "<|endoftext|>"  # id 0; between books, never asked for
WARM_UP_STEPS = 60
FALL = 0.2  # of the training, at its end
BETAS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 0.1, 1.0
REPORT_SECONDS = 10
STATE_FILE = "training_state.pt"


def say(line):
    print(line, file=sys.stderr, flush=True)


def make_tokenizer(text, folder, vocabulary):
    """A byte-level BPE tokenizer of the text, the words split as GPT-2 splits them; kept in folder."""
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train(str(text), vocab_size=vocabulary, special_tokens=[END], show_progress=False)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token=END, bos_token=END)
    fast.save_pretrained(folder)
    return tokenizer


def token_ids(tokenizer, path):
    """All ids of a text; books (divided by an empty line) with END between them."""
    ids = []
    for book in path.read_text(encoding="utf-8").split("\n\n"):
        ids += tokenizer.encode(book).ids + [0]
    return np.array(ids, dtype=np.int32)


class Rows:
    """Rows of ids at random places, each place once an epoch. A batch is [rows, tokens]."""

    def __init__(self, ids, seed, rows, tokens):
        self.ids, self.rows, self.tokens = ids, rows, tokens
        self.random, self.order = np.random.default_rng(seed), np.array([], dtype=np.int64)

    def batch(self):
        while len(self.order) < self.rows:
            starts = np.arange(self.random.integers(self.tokens), len(self.ids) - self.tokens, self.tokens)
            self.order = np.concatenate([self.order, self.random.permutation(starts)])
        starts, self.order = self.order[:self.rows], self.order[self.rows:]
        return torch.from_numpy(np.stack([self.ids[s:s + self.tokens] for s in starts]).astype(np.int64))

    def state(self):
        return {"random": self.random.bit_generator.state, "order": self.order.tolist()}

    def restore(self, state):
        self.random.bit_generator.state = state["random"]
        self.order = np.array(state["order"], dtype=np.int64)


def next_token_loss(logits, ids, ahead=1):
    """Mean loss of logits [rows, tokens, vocabulary] whose row t names id t + ahead; rows that name nothing are left out."""
    named = ids[:, ahead:]
    return torch.nn.functional.cross_entropy(logits[:, :named.shape[1]].float().flatten(0, 1), named.flatten())


def row_loss(model, ids):
    return next_token_loss(model(input_ids=ids, use_cache=False).logits, ids)


def held_out_rows(ids, tokens, rows):
    """At most about `rows` rows of the text, evenly over it: [1, tokens] each."""
    whole = torch.from_numpy(ids[:len(ids) // tokens * tokens].astype(np.int64)).view(-1, tokens)
    return [row[None] for row in whole[:: max(1, len(whole) // rows)]]


def held_out_loss(model, ids, tokens, rows=64):
    model.eval()
    with torch.no_grad():
        losses = [row_loss(model, row).item() for row in held_out_rows(ids, tokens, rows)]
    return sum(losses) / len(losses)


def optimiser(parameters, rate):
    parameters = list(parameters)
    matrices = [p for p in parameters if p.dim() >= 2]
    vectors = [p for p in parameters if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
                             lr=rate, betas=BETAS, fused=True)


class Schedule:
    """How much is done (0 to 1), by steps or by the processor's time, and the share of the rate that belongs to it.

    An interrupt starts the fall of the rate at once.
    """

    def __init__(self, steps, minutes):
        self.steps, self.seconds = steps, 60 * minutes * torch.get_num_threads()
        self.began, self.wall, self.step, self.end = time.process_time(), time.monotonic(), 0, 1.0
        self.first = 0.0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.hurry())

    def spent(self):
        return time.process_time() - self.began

    def share(self):
        return self.step / self.steps if self.steps else self.spent() / self.seconds

    def hurry(self):
        self.end = min(self.end, self.share() / (1 - FALL))
        say("interrupted: the rate falls from here")

    def done(self):
        return self.share() / self.end

    def rate(self):
        return min(1.0, (self.step + 1) / WARM_UP_STEPS, max(0.0, 1 - self.done()) / FALL)

    def minutes_left(self):
        """By the wall clock, at the pace since this process began; nothing known at the first step."""
        gained = self.done() - self.first
        return (time.monotonic() - self.wall) / 60 * (1 - self.done()) / gained if gained > 0 else float("nan")

    def state(self):
        return {"step": self.step, "spent": self.spent(), "end": self.end}

    def restore(self, state):
        self.step, self.end = state["step"], state["end"]
        self.began -= state["spent"]
        self.first = self.done()


@dataclass
class Job:
    """What train() trains. `losses(ids)` gives named losses; the first is printed smoothed, their sum is what falls."""

    modules: torch.nn.ModuleList
    losses: Callable
    rows: Rows
    rate: float
    steps: int | None = None
    minutes: float = 25
    after_step: Callable = lambda: None
    save: Callable = lambda: None  # makes the folder usable at a checkpoint
    state: Path | None = None  # where the state to go on from is kept; None: no checkpoints
    checkpoint_minutes: float = 4
    smooth: dict = field(default_factory=dict)


def keep(job, optimise, schedule):
    """A checkpoint: the folder, then the state, replaced as a whole so that a stop in between leaves the earlier one."""
    job.save()
    part = job.state.with_suffix(".part")
    torch.save({"modules": job.modules.state_dict(), "optimiser": optimise.state_dict(), "rows": job.rows.state(),
                "schedule": schedule.state(), "smooth": job.smooth}, part)
    part.replace(job.state)


def take_up(job, optimise, schedule):
    if job.state is None or not job.state.exists():
        return
    state = torch.load(job.state, weights_only=True)
    job.modules.load_state_dict(state["modules"])
    optimise.load_state_dict(state["optimiser"])
    job.rows.restore(state["rows"])
    schedule.restore(state["schedule"])
    job.smooth = state["smooth"]
    say(f"taken up at step {schedule.step}")


def step_once(job, optimise, rate):
    for group in optimise.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = job.losses(job.rows.batch())
    sum(weight * loss for weight, loss in losses.values()).backward()
    torch.nn.utils.clip_grad_norm_(job.modules.parameters(), CLIP)
    optimise.step()
    optimise.zero_grad(set_to_none=True)
    job.after_step()
    for name, (_, loss) in losses.items():
        job.smooth[name] = 0.95 * job.smooth.get(name, loss.item()) + 0.05 * loss.item()


def train(job):
    """Trains job.modules and returns the number of steps. A kept state is gone on from, and deleted when all is done."""
    optimise, schedule = optimiser(job.modules.parameters(), job.rate), Schedule(job.steps, job.minutes)
    take_up(job, optimise, schedule)
    first, began, told, kept = schedule.step, time.monotonic(), 0.0, time.monotonic()
    job.modules.train()
    while schedule.done() < 1:
        step_once(job, optimise, job.rate * schedule.rate())
        schedule.step += 1
        if time.monotonic() - told >= REPORT_SECONDS:
            told = time.monotonic()
            speed = (schedule.step - first) * job.rows.rows * job.rows.tokens / (told - began)
            losses = ", ".join(f"{name} {value:.3f}" for name, value in job.smooth.items())
            say(f"step {schedule.step}, {100 * schedule.done():.0f} %: {losses}, {speed:.0f} tokens/s, "
                f"{schedule.minutes_left():.0f} minutes left")
        if job.state is not None and time.monotonic() - kept >= 60 * job.checkpoint_minutes:
            keep(job, optimise, schedule)
            kept = time.monotonic()
    job.save()
    if job.state is not None:
        job.state.unlink(missing_ok=True)
    return schedule.step
