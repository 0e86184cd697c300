#!/usr/bin/env python3
"""The trainer of small hybrids on tiny shapes: what it saves is what it trained, a stopped training goes on as if it had not stopped,
experts are held to an even load, and the MTP layer is fed as its equations say. Skipped without torch."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
try:
    import numpy as np
    import torch
    import transformers
    from safetensors import safe_open

    import train_hybrids
    from small_training import Job, Rows, train
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
except ModuleNotFoundError as missing:
    torch = None
    WHY = f"training needs torch and transformers: {missing}"

SHAPES = ["qwen35moe-tiny", "lfm2moe-tiny"]
PUBLISHED = {"fc.weight", "norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "layers.0.input_layernorm.weight",
             "layers.0.post_attention_layernorm.weight", "layers.0.mlp.gate.weight", "layers.0.mlp.experts.gate_up_proj",
             "layers.0.mlp.experts.down_proj", "layers.0.mlp.shared_expert.gate_proj.weight",
             "layers.0.mlp.shared_expert.up_proj.weight", "layers.0.mlp.shared_expert.down_proj.weight",
             "layers.0.mlp.shared_expert_gate.weight", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight",
             "layers.0.self_attn.v_proj.weight", "layers.0.self_attn.o_proj.weight", "layers.0.self_attn.q_norm.weight",
             "layers.0.self_attn.k_norm.weight"}


def hybrid(shape):
    torch.manual_seed(3)
    return train_hybrids.Hybrid(shape)


def job(made, steps, **more):
    ids = (np.arange(4000) ** 2 % 299).astype(np.int32)
    return Job(made.modules, made.losses, Rows(ids, 5, 2, 24), made.rate, steps, after_step=made.after_step, **more)


def weights(made):
    return torch.cat([t.flatten().float() for t in made.modules.state_dict().values()])


class Stopped(Exception):
    pass


@unittest.skipIf(torch is None, "" if torch else WHY)
class TrainHybrids(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_what_is_loaded_is_what_was_trained(self):
        for shape in SHAPES:
            with self.subTest(shape):
                made = hybrid(shape)
                train(job(made, 2))
                made.save(self.folder)
                body, mtp = train_hybrids.load(self.folder)
                ids = torch.arange(20)[None]
                with torch.no_grad():
                    hidden = made.body.eval().model(input_ids=ids).last_hidden_state
                    torch.testing.assert_close(body.model(input_ids=ids).last_hidden_state, hidden)
                    if made.mtp is not None:
                        torch.testing.assert_close(mtp(hidden, ids + 1), made.mtp(hidden, ids + 1))
                self.assertEqual(mtp is None, shape == "lfm2moe-tiny")

    def test_the_layer_is_saved_under_the_published_names(self):
        made = hybrid("qwen35moe-tiny")
        made.save(self.folder)
        with safe_open(str(self.folder / "model.safetensors"), "pt") as file:
            names = {name.removeprefix("mtp.") for name in file.keys() if name.startswith("mtp.")}
        self.assertEqual(names, PUBLISHED)

    def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(self):
        for shape in SHAPES:
            with self.subTest(shape):
                whole, half = hybrid(shape), hybrid(shape)
                train(job(whole, 5))
                stopping, steps = job(half, 5, state=self.folder / "state.pt", checkpoint_minutes=0), []

                def stop_after_three():
                    half.after_step()
                    steps.append(1)
                    if len(steps) == 4:
                        raise Stopped

                stopping.after_step = stop_after_three
                self.assertRaises(Stopped, train, stopping)
                other = hybrid(shape)
                self.assertEqual(train(job(other, 5, state=self.folder / "state.pt")), 5)
                self.assertTrue(torch.equal(weights(whole), weights(other)))
                self.assertFalse((self.folder / "state.pt").exists(), "nothing is left to go on from")

    def test_the_loss_of_experts_is_one_a_layer_when_even_and_more_when_not(self):
        even = (torch.zeros(8, 4), torch.tensor([[0, 1], [2, 3]] * 4))
        uneven = (torch.tensor([[4.0, 4.0, 0.0, 0.0]] * 8), torch.tensor([[0, 1]] * 8))
        self.assertAlmostEqual(train_hybrids.balance_loss([even, even]).item(), 2.0, places=5)
        self.assertGreater(train_hybrids.balance_loss([uneven]).item(), 1.9)

    def test_the_bias_of_a_busy_expert_falls_and_of_an_idle_one_rises(self):
        made = hybrid("lfm2moe-tiny")
        made.last_ids = [torch.tensor([[0, 1], [0, 2]])] * 2  # shares 1/2, 1/4, 1/4, 0
        made.after_step()
        bias = made.body.model.layers[1].feed_forward.expert_bias
        torch.testing.assert_close(bias, train_hybrids.BIAS_STEP * torch.tensor([-1.0, 0.0, 0.0, 1.0]))

    def test_the_layer_reads_the_embedding_first_and_nothing_of_later_tokens(self):
        mtp, hidden, following = hybrid("qwen35moe-tiny").mtp.eval(), torch.randn(1, 6, 32), torch.arange(6)[None]
        with torch.no_grad():
            out = mtp(hidden, following)
            changed = hidden.clone()
            changed[:, 4:] = 9.0
            torch.testing.assert_close(mtp(changed, following)[:, :4], out[:, :4])
            mtp.fc.weight[:, 32:] = 0  # the half of the hidden state
            torch.testing.assert_close(mtp(changed, following), mtp(hidden, following))
            self.assertFalse(torch.allclose(mtp(hidden, following + 1), mtp(hidden, following)))

    def test_the_losses_name_the_tokens_that_they_should(self):
        """Depth n of position t is held against token t + n + 1: the loss of a text is that of its own tokens, spelled out."""
        made = hybrid("qwen35moe-tiny")
        made.modules.eval()
        ids = torch.randint(0, 300, (1, 12))
        with torch.no_grad():
            losses = made.losses(ids)
            hidden = made.body.model(input_ids=ids).last_hidden_state
            first = made.mtp(hidden, torch.roll(ids, -1, 1))  # the last position has no next token; nothing before reads it
            second = made.mtp(first[:, :10], ids[:, 2:])
            logits = made.body.lm_head(second)
        at = [torch.nn.functional.cross_entropy(logits[0, t], ids[0, t + 3]) for t in range(9)]
        torch.testing.assert_close(losses["mtp2"][1], torch.stack(at).mean())


if __name__ == "__main__":
    unittest.main(verbosity=2)
