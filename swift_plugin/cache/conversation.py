"""The words around the stream: the chat turn that the stream stands in, split where the stream is."""

from __future__ import annotations

from dataclasses import dataclass

from swift_plugin.errors import InputError

DEFAULT_SYSTEM = (
    "You are Qwen, a virtual human developed by the Qwen Team, Alibaba Group, capable of perceiving auditory and "
    "visual inputs, as well as generating text and speech."
)
DEFAULT_QUESTION = "Who will speak during the next two seconds: nobody, the wearer, or somebody else?"


@dataclass(frozen=True)
class Conversation:
    """Token ids of the chat turn, without the tokens of the stream itself.

    Attributes:
        prefix_ids: before the tokens that open the stream.
        opening_ids: `vision_bos, audio_bos`, or `audio_bos` for sound only.
        closing_ids: `audio_eos, vision_eos`, or `audio_eos`.
        closure_ids: after them, up to the token that the model would answer behind: the readout.
    """

    prefix_ids: list[int]
    opening_ids: list[int]
    closing_ids: list[int]
    closure_ids: list[int]


def tokenize_conversation(processor, *, system: str, question: str, has_video: bool) -> Conversation:
    """Render the chat template around one film with sound (or one sound) and cut it there.

    Args:
        processor: the checkpoint's `Qwen2_5OmniProcessor`.
        system: words of the system turn.
        question: words of the user turn, behind the stream.

    Raises:
        InputError: a template that does not write the stream where the native one does.
    """
    media = {"type": "video", "video": ""} if has_video else {"type": "audio", "audio": ""}
    messages = [
        {"role": "system", "content": [{"type": "text", "text": system}]},
        {"role": "user", "content": [media, {"type": "text", "text": question}]},
    ]
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    text = text[0] if isinstance(text, list) else text
    if has_video:
        opening = processor.vision_bos_token + processor.audio_bos_token
        closing = processor.audio_eos_token + processor.vision_eos_token
        placeholder = processor.vision_bos_token + processor.video_token + processor.vision_eos_token
    else:
        opening, closing = processor.audio_bos_token, processor.audio_eos_token
        placeholder = opening + processor.audio_token + closing
    if text.count(placeholder) != 1:
        raise InputError(
            f"the chat template writes {placeholder} {text.count(placeholder)} times instead of once; "
            "use the chat template of Qwen2.5-Omni"
        )
    before, after = text.split(placeholder)

    def ids(part: str) -> list[int]:
        return processor.tokenizer(part, add_special_tokens=False)["input_ids"]

    return Conversation(ids(before), ids(opening), ids(closing), ids(after))
