"""The layer of Qwen3.5 that predicts the token after the next (multi-token prediction), in torch: transformers leaves it out.

    u = fc(concat(rms_norm(embedding of token t+1), rms_norm(hidden of position t)))     the embedding's half first
    u = decoder layer of full attention (u)                                             its own keys and values
    hidden' = rms_norm(u);    logits of token t+2 = the body's head (hidden')

`hidden` is the body's after its last norm; for the token t+3, hidden' takes its place beside the embedding of token t+2. Embedding and
head are the body's. The names of the state are those of published checkpoints behind `mtp.` (equations and names as vLLM's
Qwen3.5 model with MTP has them).
"""
import copy

import torch


class MtpLayer(torch.nn.Module):
    """Made of the classes that the body (Qwen3.5, dense or of experts) is made of, so it computes what they compute."""

    def __init__(self, body):
        super().__init__()
        config = copy.deepcopy(body.config)
        config.layer_types, config.num_hidden_layers = ["full_attention"], 1
        decoder, norm = type(body.model.layers[0]), type(body.model.norm)
        width, eps = config.hidden_size, config.rms_norm_eps
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = norm(width, eps=eps), norm(width, eps=eps)
        self.fc = torch.nn.Linear(2 * width, width, bias=False)
        self.layers = torch.nn.ModuleList([decoder(config, 0)])
        self.norm = norm(width, eps=eps)
        for module in self.modules():
            body._init_weights(module)
        self.shared = [body.model.embed_tokens, body.model.rotary_emb]  # in a list: no part of this module's state

    def forward(self, hidden, following):
        """hidden [rows, tokens, width] of positions t, following [rows, tokens] the ids of t+1; gives hidden' of t."""
        embed, rotary = self.shared
        both = torch.cat([self.pre_fc_norm_embedding(embed(following)), self.pre_fc_norm_hidden(hidden)], dim=-1)
        positions = torch.arange(following.shape[1])[None]
        u = self.fc(both)
        u = self.layers[0](u, position_embeddings=rotary(u, positions), attention_mask=None, position_ids=positions)
        return self.norm(u)
