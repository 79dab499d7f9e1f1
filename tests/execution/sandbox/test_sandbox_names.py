"""Which names the host obeys on its own, and which are the project's own business."""

import pytest

from fakes.boxes import sh
from fakes.person import Person
from hermes.domain.errors import HermesError

pytestmark = pytest.mark.usefixtures("bubblewrap")


OBEYED = """
    .project .settings/language.settings.xml .factorypath .cproject .vim/coc-settings.json .gvimrc
    .lazy.lua my.code-workspace my.sublime-project .nova/Configuration.json .lite_project.lua
    .clinerules/hooks/PreToolUse .cline/mcp.json .continuerc.json .aider.model.settings.yml
    opencode.jsonc .crush/crush.json .amp/settings.json .openhands/setup.sh .pi/extensions/x.ts
    .config/lefthook.toml .lefthook-local.json lefthook.yaml prek.toml captainhook.json grumphp.yml
    .envrc.local .envrc.private .rvmrc .rbenv-vars mise.production.toml mise/config.toml .RData
    renv/activate.R .config/mise/config.toml .hg/hgrc .lazygit.yml .gh-dash.yml hie.yaml .merlin
    startup.m finish.m .agents/plugins/mine/hooks/hooks.json .direnv/flake-profile-1a2b3c.rc
"""
"""What was not guarded before, or not in every folder."""
OWN = """
    AGENTS.md CLAUDE.md .cursorrules .windsurfrules .clinerules/style.md .roorules .roomodes
    .goosehints .nvmrc .node-version .ruby-version .java-version .gitattributes .gitmodules
    .gitignore .npmrc .yarnrc.yml .pnp.cjs bunfig.toml .cargo/config.toml .bundle/config pip.conf
    Makefile package.json Vagrantfile .editorconfig .eslintrc.json .bsp/sbt.json .env.example
    .config/app.toml config.toml hooks/run renv.lock mise/README.md mcp.json
    jupyter_server_config.py .direnv/python-3.11/bin/tool .agents/skills/mine/SKILL.md
    .goose/recipes/mine.yaml
"""
CHOICES = {
    ".tool-versions": "nodejs 20.1.0 # lts\nelixir ref:v1.2\npython 3.12.1 system\n",
    ".python-version": "# of https://x\n3.12.1/envs/mine\n",
    "rust-toolchain.toml": '# of https://x\n[toolchain]\nchannel = "1.80"\n',
    "rust-toolchain": "stable\n",
}
PATHS = {
    ".tool-versions": "nodejs path:{at}/evil\n",
    ".python-version": "{at}/evil/python\n",
    "rust-toolchain.toml": '[toolchain]\n"p\\u0061th" = "{at}/evil"\n',
    "rust-toolchain": '[toolchain]\npath = "{at}/evil"\n',
}


def _script(paths: list[str], text: str) -> str:
    return "; ".join(f"mkdir -p $(dirname {path}); echo {text} > {path}" for path in paths)


async def test_what_tools_obey_on_their_own_cannot_be_made(person: Person) -> None:
    paths = [*OBEYED.split(), *(f"sub/deep/{path}" for path in OBEYED.split())]
    env = await person.open()
    result = await sh(env, _script(paths, "evil"))
    assert "held" in result.output
    assert [path for path in paths if (person.project / path).exists()] == []
    for path in paths:
        with pytest.raises(HermesError, match="read-only"):
            await env.write(path, b"evil")


async def test_a_name_that_is_as_long_as_can_be_is_held_too(person: Person) -> None:
    name = f"{'x' * 240}.code-workspace"
    result = await sh(await person.open(), f"touch {name}")
    assert "held" in result.output
    assert not (person.project / name).exists()


async def test_what_tools_obey_on_their_own_stays_as_it_is(person: Person) -> None:
    paths = [*OBEYED.split(), *(f"sub/deep/{path}" for path in OBEYED.split())]
    for path in paths:
        (person.project / path).parent.mkdir(parents=True, exist_ok=True)
        (person.project / path).write_text("as it was")
    env = await person.open()
    await sh(env, "; ".join(f"echo evil > {path}; echo evil > x; mv -f x {path}" for path in paths))
    await sh(env, "mv sub aside; mv renv old; rm -rf mise .config")
    assert {(person.project / path).read_text() for path in paths} == {"as it was"}


async def test_what_is_the_projects_own_is_written_without_a_word(person: Person) -> None:
    paths = [*OWN.split(), *(f"sub/deep/{path}" for path in OWN.split())]
    env = await person.open()
    for text in ("one", "two"):
        result = await sh(env, _script(paths, text))
        assert (result.exit_code, result.output) == (0, "")
        assert {(person.project / path).read_text() for path in paths} == {f"{text}\n"}
    for path in paths:
        await env.write(path, b"three")


@pytest.mark.parametrize("folder", ["", "sub/"])
async def test_a_file_that_chooses_versions_may_choose_and_no_more(
    person: Person, folder: str
) -> None:
    env = await person.open()
    for name, text in CHOICES.items():
        await env.write(f"{folder}{name}", text.encode())
        evil = text + PATHS[name].format(at=person.project)
        with pytest.raises(HermesError, match="escalate"):
            await env.write(f"{folder}{name}", evil.encode())
        await env.write("evil", evil.encode())
        usual = await sh(env, f"cat {folder}{name}; echo '# x' >> {folder}{name}")
        assert (usual.exit_code, usual.output) == (0, text)
        result = await sh(env, f"cp evil {folder}{name}")
        assert f"{folder}{name}" in result.output
        file = person.project / folder / name
        assert not file.exists() or file.read_text() == f"{text}# x\n"


async def test_a_path_that_the_person_has_chosen_may_stay(person: Person) -> None:
    file = person.project / ".tool-versions"
    file.write_text("erlang path:~/src/erlang\nnodejs 18.0.0\n")
    env = await person.open()
    result = await sh(env, "sed -i 's/18/20/' .tool-versions")
    assert (result.exit_code, result.output) == (0, "")
    await env.write(".tool-versions", file.read_bytes().replace(b"20", b"22"))
    assert file.read_text() == "erlang path:~/src/erlang\nnodejs 22.0.0\n"
    before = file.read_text()
    await sh(env, "echo python path:./evil >> .tool-versions")
    assert file.read_text() == before


async def test_a_link_to_a_folder_in_which_a_name_counts_is_held(person: Person) -> None:
    env = await person.open()
    result = await sh(env, "mkdir sub conf; touch conf/mise.toml; ln -s ../conf sub/.config")
    assert "sub/.config" in result.output
    assert not (person.project / "sub/.config").is_symlink()
