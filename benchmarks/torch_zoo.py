"""Models of transformers, timm, torchvision and diffusers for `torch_models`, with random weights.

Each function returns a model of 4 to 90 million parameters and few layers, which repeat, and its inputs by name. A
model returns a tensor, a tuple, or a dictionary of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch  # type: ignore[import-not-found]

Inputs = Mapping[str, Any]
ZOO: dict[str, Callable[[], tuple[Any, Inputs]]] = {}
"""Functions that make a model and its inputs, by name."""
VOCABULARY = 8192


def _model(name: str) -> Callable[[Callable[[], tuple[Any, Inputs]]], Callable[[], tuple[Any, Inputs]]]:
    def register(function: Callable[[], tuple[Any, Inputs]]) -> Callable[[], tuple[Any, Inputs]]:
        ZOO[name] = function
        return function

    return register


def made(name: str) -> tuple[Any, Inputs]:
    """A model with weights that are the same in each process, and its inputs."""
    torch.manual_seed(0)
    model, inputs = ZOO[name]()
    return model.eval(), inputs


def _tokens(rows: int = 1, length: int = 128) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length))


def _image(size: int = 224, rows: int = 1) -> torch.Tensor:
    return torch.randn(rows, 3, size, size)


# ---------------------------------------------------------------------------- decoders
DECODER = {
    "vocab_size": VOCABULARY, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 512,
    "use_cache": False, "pad_token_id": 0,
}  # fmt: skip


def _decoder(name: str, **changed: Any) -> None:
    def function() -> tuple[Any, Inputs]:
        import transformers  # type: ignore[import-not-found]

        config = getattr(transformers, f"{name}Config" if name != "Gemma3" else "Gemma3TextConfig")
        return getattr(transformers, f"{name}ForCausalLM")(config(**{**DECODER, **changed})), {"input_ids": _tokens()}

    _model(name.lower())(function)


_decoder("Llama")
_decoder("Qwen3")
_decoder("Gemma3", sliding_window=64)
_decoder("Phi3")
_decoder("Mistral", sliding_window=64)
_decoder("Mixtral", num_local_experts=4, num_experts_per_tok=2, intermediate_size=704)


@_model("gpt2")
def _gpt2() -> tuple[Any, Inputs]:
    from transformers import GPT2Config, GPT2LMHeadModel  # type: ignore[import-not-found]

    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_layer=2, n_embd=512, n_head=8, use_cache=False)), {
        "input_ids": _tokens()
    }


@_model("mamba")
def _mamba() -> tuple[Any, Inputs]:
    from transformers import MambaConfig, MambaForCausalLM  # type: ignore[import-not-found]

    config = MambaConfig(vocab_size=VOCABULARY, hidden_size=256, num_hidden_layers=2, use_cache=False)
    return MambaForCausalLM(config), {"input_ids": _tokens(length=64)}


# ---------------------------------------------------------------------------- encoders
@_model("bert")
def _bert() -> tuple[Any, Inputs]:
    from transformers import BertConfig, BertModel  # type: ignore[import-not-found]

    config = BertConfig(vocab_size=VOCABULARY, hidden_size=512, num_hidden_layers=2, num_attention_heads=8,
                        intermediate_size=2048)  # fmt: skip
    return BertModel(config), {"input_ids": _tokens(4)}


@_model("t5")
def _t5() -> tuple[Any, Inputs]:
    from transformers import T5Config, T5ForConditionalGeneration  # type: ignore[import-not-found]

    config = T5Config(vocab_size=VOCABULARY, d_model=384, d_ff=1024, num_layers=2, num_heads=6, use_cache=False)
    return T5ForConditionalGeneration(config), {"input_ids": _tokens(), "decoder_input_ids": _tokens(length=32)}


@_model("whisper")
def _whisper() -> tuple[Any, Inputs]:
    from transformers import WhisperConfig, WhisperForConditionalGeneration  # type: ignore[import-not-found]

    config = WhisperConfig(vocab_size=VOCABULARY, d_model=384, encoder_layers=2, decoder_layers=2,
                           encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536,
                           decoder_ffn_dim=1536, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                           decoder_start_token_id=1, max_source_positions=400, suppress_tokens=[],
                           begin_suppress_tokens=[])  # fmt: skip
    features = torch.randn(1, 80, 800)
    inputs = {"input_features": features, "decoder_input_ids": _tokens(length=32)}
    return WhisperForConditionalGeneration(config), inputs


@_model("clip")
def _clip() -> tuple[Any, Inputs]:
    from transformers import CLIPConfig, CLIPModel  # type: ignore[import-not-found]

    text = {"vocab_size": VOCABULARY, "hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6,
            "intermediate_size": 1536, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}  # fmt: skip
    vision = {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 1536,
              "patch_size": 16}  # fmt: skip
    inputs = {"input_ids": _tokens(2, 64), "pixel_values": _image(rows=2)}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision)), inputs


# ---------------------------------------------------------------------------- images
def _timm(name: str, **changed: Any) -> None:
    def function() -> tuple[Any, Inputs]:
        import timm  # type: ignore[import-not-found]

        return timm.create_model(name, pretrained=False, **changed), {"x": _image()}

    _model(name)(function)


_timm("vit_small_patch16_224", depth=3)
_timm("swin_tiny_patch4_window7_224", depths=(1, 1, 2, 1))
_timm("convnext_tiny", depths=(1, 1, 3, 1))
_timm("efficientnet_b0")
_timm("resnet18")
_timm("resnet50")


def _torchvision(name: str) -> None:
    def function() -> tuple[Any, Inputs]:
        import torchvision  # type: ignore[import-not-found]

        return getattr(torchvision.models, name)(weights=None), {"x": _image()}

    _model(f"tv_{name}")(function)


for _name in ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "swin_t", "vit_b_16",
              "mobilenet_v3_small", "densenet121", "shufflenet_v2_x1_0", "regnet_y_400mf"):  # fmt: skip
    _torchvision(_name)


@_model("detr")
def _detr() -> tuple[Any, Inputs]:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig  # type: ignore[import-not-found]

    backbone = ResNetConfig(out_features=["stage4"])
    config = DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
                        backbone_config=backbone, encoder_layers=1, decoder_layers=1)  # fmt: skip
    return DetrForObjectDetection(config), {"pixel_values": _image(320)}


@_model("sam")
def _sam() -> tuple[Any, Inputs]:
    from transformers import SamConfig, SamModel  # type: ignore[import-not-found]

    vision = {"hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 6, "image_size": 256,
              "global_attn_indexes": [2], "mlp_dim": 768, "window_size": 7}  # fmt: skip
    config = SamConfig(vision_config=vision, prompt_encoder_config={"image_size": 256, "image_embedding_size": 16})
    points = torch.tensor([[[[64.0, 80.0]]]])
    return SamModel(config), {"pixel_values": _image(256), "input_points": points, "multimask_output": False}


@_model("unet")
def _unet() -> tuple[Any, Inputs]:
    from diffusers import UNet2DConditionModel  # type: ignore[import-not-found]

    model = UNet2DConditionModel(
        sample_size=32, block_out_channels=(64, 128, 256), layers_per_block=1, cross_attention_dim=256,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    inputs = {"sample": torch.randn(1, 4, 32, 32), "timestep": torch.tensor(10),
              "encoder_hidden_states": torch.randn(1, 16, 256)}  # fmt: skip
    return model, inputs
