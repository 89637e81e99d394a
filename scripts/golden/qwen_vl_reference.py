"""Qwen-VL (the first one) in plain torch, from its published description: transformers has no class for it.

Weights are a dictionary by the names of the published checkpoints; Module holds them as modules of these names, for PEFT and optimizers. `training` matters beside dropout: dynamic NTK and the logarithmic
scale of the queries are for inference only. check() compares the parts with torch's and transformers' own.
"""
import json
import math
from types import SimpleNamespace

import torch
from peft.tuners.lora import LoraLayer
from peft.utils.other import ModulesToSaveWrapper
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def ntk_alpha(length, seq_length):
    """1 up to seq_length tokens, then 3, 7, 15, ... each time that the length doubles."""
    return max(2 ** math.ceil(math.log2(length / seq_length) + 1) - 1, 1)


def rotary(length, dim, base, alpha):
    """cos and sin [length, dim], halves alike."""
    base = base * alpha ** (dim / (dim - 2))
    angles = torch.outer(torch.arange(length).float(), 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x [B, heads, T, dim]; channel i turns with channel i + dim / 2."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


def query_scale(length, seq_length):
    """log_seq_length(position) beyond seq_length, counted from 1; [length]."""
    return torch.tensor([max(1.0, math.log(i, seq_length)) for i in range(1, length + 1)])


def resize_positions(table, side):
    """[n * n, D] -> [side * side, D], bicubic without antialiasing; as it is where the sides are equal."""
    old = math.isqrt(len(table))
    if old == side:
        return table
    return F.interpolate(table.T.reshape(1, -1, old, old), (side, side), mode="bicubic", align_corners=False)[0].flatten(1).T


def sincos_positions(dim, side):
    """[side * side, dim]: first half from the column, second from the row; each half all sines, then all cosines."""
    frequencies = 10000.0 ** -(torch.arange(dim // 4).float() / (dim // 4))
    angles = torch.outer(torch.arange(side).float(), frequencies)
    line = torch.cat([angles.sin(), angles.cos()], -1)
    return torch.cat([line.repeat(side, 1), line.repeat_interleave(side, 0)], -1)


def attend(q, k, v, allowed=None):
    """[B, heads, T, dim] each; softmax(q k^T / sqrt(dim)) v as [B, T, heads * dim]."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class QwenVL:
    """Has what the generators use of a transformers model."""

    def __init__(self, config, weights):
        self.config, self.weights, self.training = config, weights, False
        self.generation_config = SimpleNamespace(eos_token_id=2)

    def named_parameters(self):
        return self.weights.items()

    def zero_grad(self):
        for p in self.weights.values():
            p.grad = None

    def part(self, prefix):
        return {k.removeprefix(prefix): v for k, v in self.weights.items() if k.startswith(prefix)}

    # ---- images

    def vision_block(self, x, w, heads):
        """The fused projection holds q, k and v of the first head, then of the second, ..."""
        norm = lambda name, y: F.layer_norm(y, y.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-6)
        linear = lambda name, y: F.linear(y, w[name + ".weight"], w[name + ".bias"])
        q, k, v = heads_of(linear("attn.in_proj", norm("ln_1", x)), heads).chunk(3, -1)
        x = x + linear("attn.out_proj", attend(q, k, v))
        return x + linear("mlp.c_proj", F.gelu(linear("mlp.c_fc", norm("ln_2", x))))

    def resample(self, x, w):
        """[N, P, width] -> [N, queries, output_dim]. Positions are added to queries and keys, after the norms, not to the values."""
        visual = self.config["visual"]
        dim, heads = visual["output_dim"], visual["output_dim"] // visual.get("attn_pool_head_dim", 128)
        norm = lambda name, y: F.layer_norm(y, (dim,), w[name + ".weight"], w[name + ".bias"], 1e-6)
        x = norm("ln_kv", x @ w["kv_proj.weight"].T)
        inputs = (norm("ln_q", w["query"]) + w["pos_embed"]).expand(len(x), -1, -1), x + resize_positions(w["pos_embed"], math.isqrt(x.shape[1])), x
        q, k, v = (heads_of(F.linear(y, weight, bias), heads)
                   for y, weight, bias in zip(inputs, w["attn.in_proj_weight"].chunk(3), w["attn.in_proj_bias"].chunk(3)))
        return F.linear(attend(q, k, v), w["attn.out_proj.weight"], w["attn.out_proj.bias"])

    def image_features(self, pixel_values):
        """[N, 3, S, S] -> [N, queries, output_dim]."""
        visual, w = self.config["visual"], self.part("transformer.visual.")
        x = F.conv2d(pixel_values, w["conv1.weight"], stride=visual["patch_size"]).flatten(2).transpose(1, 2)
        x = x + resize_positions(w["positional_embedding"], math.isqrt(x.shape[1]))
        x = F.layer_norm(x, x.shape[-1:], w["ln_pre.weight"], w["ln_pre.bias"], 1e-6)
        for i in range(visual["layers"]):
            x = self.vision_block(x, self.part(f"transformer.visual.transformer.resblocks.{i}."), visual["heads"])
        x = self.resample(x, self.part("transformer.visual.attn_pool."))
        return F.layer_norm(x, x.shape[-1:], w["ln_post.weight"], w["ln_post.bias"], 1e-6) @ w["proj"]

    # ---- language model

    def embed(self, input_ids, pixel_values):
        """Between image_start_id and the id after it lie as many tokens as there are queries; what they are has no meaning here."""
        x = F.embedding(input_ids, self.weights["transformer.wte.weight"])
        start = self.config["visual"]["image_start_id"]
        places = [(b, i) for b, i in (input_ids == start).nonzero().tolist()]
        if not places:
            return x
        features = self.image_features(pixel_values)
        assert len(features) == len(places)
        slots = torch.zeros(input_ids.shape, dtype=torch.bool)
        for b, i in places:
            end = i + 1 + features.shape[1]
            assert input_ids[b, end] == start + 1
            slots[b, i + 1:end] = True
        return x.masked_scatter(slots[..., None], features)

    def block(self, x, w, cos, sin, scale, allowed, past):
        config, heads = self.config, self.config["num_attention_heads"]
        eps = config["layer_norm_epsilon"]
        fused = F.linear(rms_norm(x, w["ln_1.weight"], eps), w["attn.c_attn.weight"], w["attn.c_attn.bias"])
        q, k, v = (heads_of(y, heads) for y in fused.chunk(3, -1))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        x = x + attend(q * scale[:, None], k, v, allowed) @ w["attn.c_proj.weight"].T
        y = rms_norm(x, w["ln_2.weight"], eps)
        return x + ((y @ w["mlp.w1.weight"].T) * F.silu(y @ w["mlp.w2.weight"].T)) @ w["mlp.c_proj.weight"].T, (k, v)

    def run(self, input_ids, attention_mask, pixel_values=None, past=None, alpha=None):
        """Logits [B, T, V], keys and values, and the NTK factor of the prompt, which the steps after it keep.
        Positions are columns, padding on the left included; attention_mask [B, all columns so far]."""
        config, before = self.config, 0 if past is None else past[0][0].shape[2]
        width = before + input_ids.shape[1]
        if past is None:
            alpha = ntk_alpha(width, config["seq_length"]) if config["use_dynamic_ntk"] and not self.training else 1
        cos, sin = (t[before:] for t in rotary(width, config["kv_channels"], config["rotary_emb_base"], alpha))
        scale = torch.ones(width) if self.training or not config["use_logn_attn"] else query_scale(width, config["seq_length"])
        allowed = torch.ones(width, width, dtype=torch.bool).tril()[before:] & attention_mask[:, None, None, :].bool()
        x, now = self.embed(input_ids, pixel_values) if past is None else F.embedding(input_ids, self.weights["transformer.wte.weight"]), []
        for i in range(config["num_hidden_layers"]):
            x, cache = self.block(x, self.part(f"transformer.h.{i}."), cos, sin, scale[before:], allowed, past and past[i])
            now.append(cache)
        x = rms_norm(x, self.weights["transformer.ln_f.weight"], config["layer_norm_epsilon"])
        return x @ self.weights["lm_head.weight"].T, now, alpha

    def __call__(self, input_ids, attention_mask, labels=None, pixel_values=None):
        logits = self.run(input_ids, attention_mask, pixel_values)[0]
        loss = None if labels is None else F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return SimpleNamespace(logits=logits, loss=loss)

    @torch.no_grad()
    def generate(self, input_ids, attention_mask, max_new_tokens, pixel_values=None, **_):
        sequence, mask, scores, past, alpha = input_ids, attention_mask, [], None, None
        for _ in range(max_new_tokens):
            fresh = sequence if past is None else sequence[:, -1:]
            logits, past, alpha = self.run(fresh, mask, pixel_values, past, alpha)
            scores.append(logits[:, -1])
            sequence = torch.cat([sequence, scores[-1].argmax(-1, keepdim=True)], 1)
            mask = F.pad(mask, (0, 1), value=1)
        return SimpleNamespace(sequences=sequence, scores=scores)


LINEAR = ("c_attn", "c_proj", "w1", "w2", "lm_head", "in_proj", "out_proj", "c_fc", "kv_proj")


class Module(nn.Module):
    """Linear layers and whole modules that PEFT replaces count: the weights are those that their layers act with."""

    def __init__(self, config, weights):
        super().__init__()
        self.config = config
        for name, values in weights.items():
            *path, leaf = name.split(".")
            module = self
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Linear(*reversed(weights[name.rsplit(".", 1)[0] + ".weight"].shape), leaf == "bias")
                                      if part in LINEAR else nn.Module())
                module = module._modules[part]
            setattr(module, leaf, nn.Parameter(values.detach().clone()))
        self.eval()

    @classmethod
    def load(cls, folder):
        """Errors: AssertionError when a tensor is missing, unknown or of another shape."""
        config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
        assert {name: tuple(values.shape) for name, values in weights.items()} == dict(shapes(config))
        return cls(config, weights)

    def acting(self, module, prefix=""):
        if isinstance(module, LoraLayer):
            base = module.get_base_layer()
            yield prefix + "weight", base.weight + module.get_delta_weight("default")
            if base.bias is not None:
                yield prefix + "bias", base.bias
            return
        if isinstance(module, ModulesToSaveWrapper):
            module = module.modules_to_save["default"]
        yield from ((prefix + name, p) for name, p in module.named_parameters(recurse=False))
        for name, child in module.named_children():
            yield from self.acting(child, f"{prefix}{name}.")

    def forward(self, labels=None, num_items_in_batch=None, **batch):
        model = QwenVL(self.config, dict(self.acting(self)))
        model.training = self.training
        out = model(labels=labels, **batch)
        if num_items_in_batch is not None:
            out.loss = out.loss * (labels[:, 1:] != -100).sum() / num_items_in_batch
        return out


def shapes(config):
    """Every tensor of a checkpoint."""
    hidden, visual = config["hidden_size"], config["visual"]
    inner, width, out = config["intermediate_size"] // 2, visual["width"], visual["output_dim"]      # half of what the config says
    tower, inner_vision = "transformer.visual.", int(width * visual["mlp_ratio"])
    yield "transformer.wte.weight", (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"transformer.h.{i}."
        yield from ((layer + "ln_1.weight", (hidden,)), (layer + "attn.c_attn.weight", (3 * hidden, hidden)), (layer + "attn.c_attn.bias", (3 * hidden,)),
                    (layer + "attn.c_proj.weight", (hidden, hidden)), (layer + "ln_2.weight", (hidden,)), (layer + "mlp.w1.weight", (inner, hidden)),
                    (layer + "mlp.w2.weight", (inner, hidden)), (layer + "mlp.c_proj.weight", (hidden, inner)))
    yield from (("transformer.ln_f.weight", (hidden,)), ("lm_head.weight", (config["vocab_size"], hidden)))

    def affine(name, n):
        return (name + ".weight", (n,)), (name + ".bias", (n,))

    def linear(name, n, m):
        return (name + ".weight", (n, m)), (name + ".bias", (n,))
    yield tower + "positional_embedding", (256, width)
    yield tower + "proj", (out, out)
    yield tower + "conv1.weight", (width, 3, visual["patch_size"], visual["patch_size"])
    yield from affine(tower + "ln_pre", width)
    for i in range(visual["layers"]):
        layer = f"{tower}transformer.resblocks.{i}."
        yield from affine(layer + "ln_1", width) + affine(layer + "ln_2", width) + linear(layer + "attn.in_proj", 3 * width, width)
        yield from linear(layer + "attn.out_proj", width, width) + linear(layer + "mlp.c_fc", inner_vision, width) + linear(layer + "mlp.c_proj", width, inner_vision)
    pool, queries = tower + "attn_pool.", visual["n_queries"]
    yield from ((pool + "pos_embed", (queries, out)), (pool + "query", (queries, out)), (pool + "kv_proj.weight", (out, width)),
                (pool + "attn.in_proj_weight", (3 * out, out)), (pool + "attn.in_proj_bias", (3 * out,)))
    yield from linear(pool + "attn.out_proj", out, out) + affine(pool + "ln_q", out) + affine(pool + "ln_kv", out) + affine(tower + "ln_post", out)


# ---- identities

def check_language_model(model, input_ids, attention_mask):
    """It is Qwen2 with fused projections: w2 is the gate, w1 the other branch."""
    from transformers import Qwen2Config, Qwen2ForCausalLM
    c, w = model.config, model.weights
    other = Qwen2ForCausalLM(Qwen2Config(
        vocab_size=c["vocab_size"], hidden_size=c["hidden_size"], intermediate_size=c["intermediate_size"] // 2, num_hidden_layers=c["num_hidden_layers"],
        num_attention_heads=c["num_attention_heads"], num_key_value_heads=c["num_attention_heads"], rms_norm_eps=c["layer_norm_epsilon"])).eval()
    state = {"model.embed_tokens.weight": w["transformer.wte.weight"], "lm_head.weight": w["lm_head.weight"], "model.norm.weight": w["transformer.ln_f.weight"]}
    for i in range(c["num_hidden_layers"]):
        ours, theirs = f"transformer.h.{i}.", f"model.layers.{i}."
        for kind in ("weight", "bias"):
            for name, value in zip("qkv", w[f"{ours}attn.c_attn.{kind}"].chunk(3)):
                state[f"{theirs}self_attn.{name}_proj.{kind}"] = value
        for a, b in (("attn.c_proj", "self_attn.o_proj"), ("mlp.w2", "mlp.gate_proj"), ("mlp.w1", "mlp.up_proj"), ("mlp.c_proj", "mlp.down_proj"),
                     ("ln_1", "input_layernorm"), ("ln_2", "post_attention_layernorm")):
            state[f"{theirs}{b}.weight"] = w[f"{ours}{a}.weight"]
    other.load_state_dict({k: v.detach() for k, v in state.items()})
    mask = attention_mask[..., None]
    assert torch.allclose(other(input_ids=input_ids, attention_mask=attention_mask).logits * mask, model(input_ids, attention_mask).logits * mask, atol=1e-5)


def check_vision(model, pixel_values):
    """A block is torch's pre-norm encoder layer once the fused rows are sorted; the resampler's attention is torch's."""
    visual, name = model.config["visual"], "transformer.visual.transformer.resblocks.0."
    width, heads = visual["width"], visual["heads"]
    w = model.part(name)
    layer = nn.TransformerEncoderLayer(width, heads, int(width * visual["mlp_ratio"]), 0, F.gelu, 1e-6, batch_first=True, norm_first=True)
    fused = {kind: w[f"attn.in_proj.{kind}"].unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2) for kind in ("weight", "bias")}
    state = {"self_attn.in_proj_weight": fused["weight"], "self_attn.in_proj_bias": fused["bias"]}
    for a, b in (("attn.out_proj", "self_attn.out_proj"), ("mlp.c_fc", "linear1"), ("mlp.c_proj", "linear2"), ("ln_1", "norm1"), ("ln_2", "norm2")):
        state |= {f"{b}.{kind}": w[f"{a}.{kind}"] for kind in ("weight", "bias")}
    layer.load_state_dict({k: v.detach() for k, v in state.items()})
    x = F.conv2d(pixel_values, model.weights["transformer.visual.conv1.weight"], stride=visual["patch_size"]).flatten(2).transpose(1, 2)
    assert torch.allclose(layer(x), model.vision_block(x, w, heads), atol=1e-5)

    pool, out = model.part("transformer.visual.attn_pool."), visual["output_dim"]
    attention = nn.MultiheadAttention(out, out // visual.get("attn_pool_head_dim", 128), batch_first=True)
    attention.load_state_dict({k.removeprefix("attn."): v.detach() for k, v in pool.items() if k.startswith("attn.")})
    values = F.layer_norm(x @ pool["kv_proj.weight"].T, (out,), pool["ln_kv.weight"], pool["ln_kv.bias"], 1e-6)
    queries = F.layer_norm(pool["query"], (out,), pool["ln_q.weight"], pool["ln_q.bias"], 1e-6) + pool["pos_embed"]
    keys = values + resize_positions(pool["pos_embed"], math.isqrt(x.shape[1]))
    assert torch.allclose(attention(queries.expand(len(x), -1, -1), keys, values)[0], model.resample(x, pool), atol=1e-5)


def check_lengths(model, input_ids):
    """Inference differs from training beyond seq_length only; with the cache it is the same as without."""
    n, mask = model.config["seq_length"], torch.ones_like(input_ids)
    assert input_ids.shape == (1, 2 * n + 1)
    assert [ntk_alpha(i, n) for i in (1, n, n + 1, 2 * n, 2 * n + 1, 4 * n, 4 * n + 1)] == [1, 1, 3, 3, 7, 7, 15]
    assert query_scale(2 * n, n)[:n].eq(1).all() and query_scale(2 * n, n)[n:].gt(1).all()

    def both(length):
        found = []
        for model.training in (True, False):
            found.append(model.run(input_ids[:, :length], mask[:, :length])[0])
        return found
    assert torch.equal(*both(n)) and not torch.allclose(*both(n + 1), atol=1e-3)
    _, past, alpha = model.run(input_ids[:, :n - 3], mask[:, :n - 3])
    step = model.run(input_ids[:, n - 3:n], mask[:, :n], None, past, alpha)[0]
    assert torch.allclose(step, both(n)[1][:, n - 3:], atol=1e-5)


def check(model, pixel_values, input_ids, attention_mask, long_ids):
    with torch.no_grad():
        check_language_model(model, input_ids, attention_mask)
        check_vision(model, pixel_values)
        check_lengths(model, long_ids)
        column, row = 2, 1      # place 5 of a 3 x 3 grid
        by_hand = [f(x) for v in (column, row) for f in (math.sin, math.cos) for x in (v, v / 100)]
        assert torch.allclose(sincos_positions(8, 3)[5], torch.tensor(by_hand))
