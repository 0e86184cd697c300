#!/usr/bin/env python3
"""Trains a small hybrid or mixture of experts on real text, so that routers, perplexity and drafts of the MTP layer mean something.

    tools/train_hybrids.py TEXT OUT --shape qwen35moe-small [--minutes 25 | --steps N] [--seed 1] [--threads 1]

TEXT is a folder with train.txt and held_out.txt (tools/book_text.py makes one). OUT becomes a Hugging Face folder: FP32
safetensors, config, a byte-level BPE tokenizer of its own (2,048 tokens) and held_out.txt; every few minutes a usable one. Started
again with the same OUT it goes on from there. With --steps and one thread the weights are those of the seed. --minutes counts the
processor's time by thread. An interrupt starts the fall of the rate at once. tools/hybrid_figures.py measures what was trained.

Shapes: qwen35moe-small, three layers of the gated delta rule to one of attention, 16 experts of which two and a shared one work, and a
layer that predicts the token after the next (MTP), which transformers does not have: mtp_layer.py makes it of the library's decoder
layer, and its tensors are saved as the published checkpoints name them. lfm2moe-small, short convolutions and attention, one dense
layer, 16 experts of which four work, chosen with a bias. Experts are kept busy as the publishers do it: by a small loss in the
first, by steps of the bias in the second. Needs torch, transformers, tokenizers, safetensors and numpy.
"""
import argparse
import json
import math
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from mtp_layer import MtpLayer
from small_training import (STATE_FILE, Job, Rows, held_out_loss, make_tokenizer, next_token_loss, say, token_ids, train)

ROW_TOKENS = 256
BATCH_ROWS = 4
MTP_WEIGHT = 0.3  # of each depth's loss beside the body's
BALANCE_WEIGHT = 0.002  # of the loss that spreads tokens over experts; summed over layers it is 1 a layer when they are spread
BIAS_STEP = 0.001  # by which an expert's bias moves towards an equal load, a step

QWEN3_5_MOE = dict(config="Qwen3_5MoeTextConfig", balance="loss", mtp_depths=2, rms_norm_eps=1e-6, attn_output_gate=True,
                   full_attention_interval=4, mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False,
                   tie_word_embeddings=False)
LFM2_MOE = dict(config="Lfm2MoeConfig", balance="bias", mtp_depths=0, norm_eps=1e-5, conv_L_cache=3, conv_bias=False,
                use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.0, tie_word_embeddings=True, pad_token_id=None)
SHAPES = {
    "qwen35moe-small": QWEN3_5_MOE | dict(
        vocab_size=2048, learning_rate=2e-3, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=64, linear_value_head_dim=64,
        linear_conv_kernel_dim=4, num_experts=16, num_experts_per_tok=2, moe_intermediate_size=128,
        shared_expert_intermediate_size=128,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25, mrope_section=[3, 3, 2],
                             mrope_interleaved=True)),
    "lfm2moe-small": LFM2_MOE | dict(
        vocab_size=2048, learning_rate=2e-3, hidden_size=256, intermediate_size=512, num_hidden_layers=6, num_dense_layers=1,
        layer_types=["conv", "conv", "full_attention", "conv", "full_attention", "conv"], num_attention_heads=4,
        num_key_value_heads=2, num_experts=16, num_experts_per_tok=4, moe_intermediate_size=128,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "qwen35moe-tiny": QWEN3_5_MOE | dict(
        vocab_size=300, learning_rate=3e-3, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
        linear_conv_kernel_dim=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
                             mrope_interleaved=True)),
    "lfm2moe-tiny": LFM2_MOE | dict(
        vocab_size=300, learning_rate=3e-3, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_dense_layers=1,
        layer_types=["conv", "full_attention", "conv"], num_attention_heads=2, num_key_value_heads=1, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=16, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
}


class Choices:
    """What the routers of some modules chose in the last pass: (logits [tokens, experts], ids [tokens, chosen]) a layer."""

    def __init__(self, *modules):
        self.last = []
        for module in modules:
            for part in module.modules():
                if type(part).__name__.endswith("TopKRouter"):
                    part.register_forward_hook(lambda _part, _args, out: self.last.append((out[0], out[2])))

    def take(self):
        last, self.last = self.last, []
        return last


def loads(ids, experts):
    """The share of all choices that fell on each expert."""
    return torch.bincount(ids.flatten(), minlength=experts).float() / ids.numel()


def balance_loss(choices):
    """As Switch Transformers: experts times the sum of (share of choices x mean probability), over layers; 1 when even."""
    layers = []
    for logits, ids in choices:
        probability = torch.softmax(logits.float(), dim=-1).mean(dim=0)
        layers.append(logits.shape[-1] * (loads(ids, logits.shape[-1]) * probability).sum())
    return sum(layers)


class Hybrid:
    """A body of transformers, its MTP layer if the shape has one, and the losses they are trained by."""

    def __init__(self, shape):
        values = dict(SHAPES[shape])
        config_class = getattr(transformers, values.pop("config"))
        self.rate, self.balance, self.depths = (values.pop(k) for k in ("learning_rate", "balance", "mtp_depths"))
        config = config_class(max_position_embeddings=8 * ROW_TOKENS, bos_token_id=0, eos_token_id=0, **values)
        self.body = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                                                  experts_implementation="grouped_mm")
        self.mtp = MtpLayer(self.body) if self.depths else None
        self.modules = torch.nn.ModuleList([self.body] + ([self.mtp] if self.mtp is not None else []))
        self.choices = Choices(*self.modules)
        self.last_ids = []

    def losses(self, ids):
        """(weight, loss) by name. ids [rows, tokens]."""
        hidden = self.body.model(input_ids=ids, use_cache=False).last_hidden_state
        losses = {"loss": (1.0, next_token_loss(self.body.lm_head(hidden), ids))}
        for depth in range(1, self.depths + 1):
            hidden = self.mtp(hidden[:, :-1], ids[:, depth:])
            losses[f"mtp{depth}"] = (MTP_WEIGHT, next_token_loss(self.body.lm_head(hidden), ids, ahead=depth + 1))
        choices = self.choices.take()
        if self.balance == "loss":
            losses["balance"] = (BALANCE_WEIGHT, balance_loss(choices))
        self.last_ids = [ids for _, ids in choices]
        return losses

    def after_step(self):
        """An expert that was chosen more than its share becomes harder to choose, by a step whatever the excess."""
        if self.balance != "bias":
            return
        layers = [layer.feed_forward for layer in self.body.model.layers if hasattr(layer.feed_forward, "expert_bias")]
        for layer, ids in zip(layers, self.last_ids, strict=True):
            experts = layer.expert_bias.numel()
            layer.expert_bias += BIAS_STEP * torch.sign(1 / experts - loads(ids, experts))

    def save(self, folder):
        """The folder's weights are replaced as a whole: who reads it meanwhile has the earlier ones or these."""
        part = folder / "part"
        self.body.save_pretrained(part)
        if self.mtp is not None:
            tensors = dict(self.body.state_dict())
            tensors |= {f"mtp.{name}": tensor for name, tensor in self.mtp.state_dict().items()}
            save_file({name: t.contiguous() for name, t in tensors.items()}, part / "model.safetensors",
                      metadata={"format": "pt"})
        for file in part.iterdir():
            file.replace(folder / file.name)
        part.rmdir()


def load(folder):
    """(body, MTP layer or None) of a folder that this script made, in FP32."""
    body = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tensors = load_file(Path(folder) / "model.safetensors")
    own = {name.removeprefix("mtp."): t for name, t in tensors.items() if name.startswith("mtp.")}
    if not own:
        return body.eval(), None
    mtp = MtpLayer(body)
    mtp.load_state_dict(own)
    return body.eval(), mtp.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="qwen35moe-small")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--steps", type=int, help="instead of --minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint-minutes", type=float, default=4)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)

    tokenizer = make_tokenizer(options.text / "train.txt", options.out, SHAPES[options.shape]["vocab_size"])
    shutil.copy(options.text / "held_out.txt", options.out / "held_out.txt")
    ids = token_ids(tokenizer, options.text / "train.txt")
    hybrid = Hybrid(options.shape)
    parameters = sum(p.numel() for p in hybrid.modules.parameters())
    say(f"{options.shape}: {parameters / 1e6:.1f} M parameters, {len(ids) / 1e6:.2f} M tokens of text")

    job = Job(hybrid.modules, hybrid.losses, Rows(ids, options.seed, BATCH_ROWS, ROW_TOKENS), hybrid.rate, options.steps,
              options.minutes, hybrid.after_step, lambda: hybrid.save(options.out), options.out / STATE_FILE,
              options.checkpoint_minutes)
    steps = train(job)
    loss = held_out_loss(hybrid.body, token_ids(tokenizer, options.text / "held_out.txt"), ROW_TOKENS)
    summary = {"shape": options.shape, "seed": options.seed, "parameters": parameters, "steps": steps,
               "tokens": steps * BATCH_ROWS * ROW_TOKENS, "held_out_loss": loss, "held_out_perplexity": math.exp(loss),
               "torch": torch.__version__, "transformers": transformers.__version__}
    (options.out / "training.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
