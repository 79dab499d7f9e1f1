"""text_to_speech: a spoken version of a text, by a service or by the machine's own engine."""

import posixpath
import re
import shlex
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.domain.errors import HermesError, UsageError
from hermes.domain.ports.execution import ShellRun
from hermes.domain.settings.models import SpeechService
from hermes.domain.tools import Intent, Need, ToolContext, ToolResult, ToolSpec, WebRequest

MAX_CHARS = 4000
MAX_BYTES = 25_000_000
SECONDS = 120.0
FOLDER = "/tmp/hermes-media"  # noqa: S108 - private to the session where commands run
_MARKUP = re.compile(r"```.*?```|[*_`#>|]+|\[([^\]\n]{0,200})\]\([^)\n]{0,500}\)", re.DOTALL)
_TYPES = {".ogg": "opus", ".opus": "opus", ".mp3": "mp3", ".wav": "wav", ".flac": "flac"}


class TextToSpeechArgs(Struct, frozen=True, kw_only=True):
    text: str
    output_path: Annotated[str | None, Meta(description=".ogg, .mp3 or .wav")] = None


async def text_to_speech(args: TextToSpeechArgs, context: ToolContext) -> ToolResult:
    """Speak a text into an audio file; put the MEDIA line of the result into your answer."""
    said = " ".join(_MARKUP.sub(r"\1", args.text[: 2 * MAX_CHARS]).split())
    if not said or len(said) > MAX_CHARS:
        raise UsageError(f"The text must have between 1 and {MAX_CHARS} characters.")
    path = args.output_path or f"{FOLDER}/{re.sub(r'[^A-Za-z0-9]', '', context.call_id)}.ogg"
    path = context.environment.resolve(path)
    ending = posixpath.splitext(path)[1].lower()
    if ending not in _TYPES:
        raise UsageError(f"{path} must end with {', '.join(_TYPES)}.")
    settings, variable = context.capabilities.settings().tts, context.capabilities.variable
    key = settings.openai.api_key or variable("VOICE_TOOLS_OPENAI_KEY")
    provider = settings.provider
    if provider in {"", "edge"}:
        provider = "openai" if key or settings.openai.base_url else "espeak"
    if provider == "openai":
        await _by_service(said, path, _TYPES[ending], settings.openai, key or "", context)
    elif provider == "espeak":
        path = await _by_engine(said, path, settings.espeak.voice, context)
    else:
        raise HermesError(
            f"There is no speech provider `{provider}`.", hint="Set tts.provider: openai or espeak."
        )
    voice = "[[audio_as_voice]] " if path.endswith((".ogg", ".opus")) else ""
    return ToolResult(content=f"{voice}MEDIA:{path}")


async def _by_service(
    said: str, path: str, form: str, service: SpeechService, key: str, context: ToolContext
) -> None:
    base = (service.base_url or "https://api.openai.com/v1").rstrip("/")
    body = {"model": service.model, "voice": service.voice, "input": said, "response_format": form}
    answer = await context.fetch(
        WebRequest(
            url=f"{base}/audio/speech",
            method="POST",
            headers={"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {key}"} if key else {}),
            body=msgspec.json.encode(body),
            limit=MAX_BYTES,
            timeout=SECONDS,
            by_operator=bool(service.base_url),
        )
    )
    if answer.status >= 400:
        reason = " ".join(answer.body[:300].decode("utf-8", "replace").split())
        raise HermesError(f"The speech service answered with status {answer.status}: {reason}")
    await context.environment.write(path, answer.body)


_ENGINE = """
command -v espeak-ng >/dev/null 2>&1 || exit 90
umask 077; mkdir -p -- {folder} || exit 1
wav() {{ espeak-ng -v {voice} --stdin -w "$1" && [ -s "$1" ] && printf %s "$1" || exit 91; exit; }}
if [ {ending} = .wav ]; then wav {path}; fi
command -v ffmpeg >/dev/null 2>&1 || wav {path}.wav
espeak-ng -v {voice} --stdin --stdout | ffmpeg -loglevel error -y -i - {path} && printf %s {path}
"""


async def _by_engine(said: str, path: str, voice: str, context: ToolContext) -> str:
    """Let espeak-ng speak; without ffmpeg the result is a .wav file."""
    script = _ENGINE.format(
        folder=shlex.quote(posixpath.dirname(path)),
        ending=posixpath.splitext(path)[1],
        voice=shlex.quote(voice),
        path=shlex.quote(path),
    )
    run = ShellRun(script=script, cwd="/", stdin=said.encode(), timeout=SECONDS)
    result = await context.environment.run(run)
    if result.exit_code == 90:
        raise HermesError(
            "There is no speech engine where commands run.",
            hint="Install espeak-ng there, or set tts.openai or VOICE_TOOLS_OPENAI_KEY.",
        )
    if result.exit_code == 91:
        raise UsageError(f"{path} cannot be written.", hint="Choose another output_path.")
    if result.exit_code:
        raise HermesError(f"Speaking failed: {result.output.strip()[:300]}")
    return result.output.strip().splitlines()[-1]


def _intent(arguments: dict[str, object]) -> Intent:
    path = str(arguments.get("output_path") or "")
    return Intent(writes=(path,)) if path else Intent()


TOOL = tool(
    text_to_speech,
    ToolSpec(
        name="text_to_speech",
        toolset="tts",
        emoji="🔊",
        verb="speak",
        label_field="text",
        replay_safe=True,
        intent=_intent,
        needs=frozenset({Need.FETCH}),
    ),
)
