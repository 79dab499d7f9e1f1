#!/bin/bash
# Refuses what git would leave half done: to change files that are read-only in the sandbox.
# It looks at what a command would change before git begins. A convenience, and no wall: what it
# does not know goes on to git, which then fails in the middle.
real=@REAL@
guarded='@GUARDED@'
words=("$@") lead=() at=0
while [[ ${words[at]-} == -* ]]; do
    case ${words[at]} in
        -C | -c | --git-dir | --work-tree | --namespace | --config-env)
            lead+=("${words[at]}" "${words[at + 1]-}")
            at=$((at + 2))
            ;;
        *)
            lead+=("${words[at]}")
            at=$((at + 1))
            ;;
    esac
done
verb=${words[at]-}
on() { exec -a git "$real" "${words[@]}"; }
case $verb in
    checkout | switch | restore | reset | merge | rebase | pull | cherry-pick | revert | stash) ;;
    *) on ;;
esac

git() { "$real" -c core.quotePath=false "${lead[@]}" "$@" 2>&- </dev/null; }
changed() { git diff --no-ext-diff --no-relative --name-only "$@"; }
commit() {
    git rev-parse -q --verify "$1^{commit}" && return
    [[ $verb == checkout || $verb == switch ]] || return
    local found
    found=$(git for-each-ref --count=1 --format='%(objectname)' "refs/remotes/*/$1")
    [[ $found ]] && echo "$found"
}

plain=() targets=() paths=() ranges=()
moves='' staged='' rebases='' source='' skip='' after=''
for word in "${words[@]:at+1}"; do
    if [[ $skip == source ]]; then
        source=$word skip=''
    elif [[ $skip ]]; then
        skip=''
    elif [[ $after ]]; then
        paths+=("$word")
    else
        case $word in
            --) after=1 ;;
            --abort | --continue | --quit | --skip | --edit-todo | --show-current-patch) on ;;
            --hard | --merge | --keep) moves=1 ;;
            -S | --staged) staged=1 ;;
            -W | --worktree) staged='' ;;
            -r | --rebase | --rebase=*) rebases=1 ;;
            --source=*) source=${word#*=} ;;
            -s | --source) [[ $verb == restore ]] && skip=source || skip=1 ;;
            -b | -B | -c | -C | -m | -F | -X | --orphan | --strategy | --message) skip=1 ;;
            -) targets+=("$(commit '@{-1}')") ;;
            -*) ;;
            *..*) ranges+=("$word") ;;
            *)
                plain+=("$word")
                if found=$(commit "$word"); then targets+=("$found"); else paths+=("$word"); fi
                ;;
        esac
    fi
done

would_change() {
    local target
    case $verb in
        checkout | switch)
            if ((${#paths[@]})); then
                changed ${targets[0]+"${targets[0]}"} -- "${paths[@]}"
            elif ((${#targets[@]})); then
                changed HEAD "${targets[0]}"
            fi
            ;;
        restore) [[ $staged ]] || changed ${source:+"$source"} -- "${plain[@]}" "${paths[@]}" ;;
        reset) [[ ! $moves ]] || changed "${targets[0]-HEAD}" ;;
        merge) for target in "${targets[@]}"; do changed "HEAD...$target"; done ;;
        rebase) changed "${targets[0]-@\{u\}}" HEAD ;;
        cherry-pick | revert)
            for target in "${targets[@]}"; do changed "$target^" "$target"; done
            for target in "${ranges[@]}"; do git log --format= --name-only "$target"; done
            ;;
        stash)
            case ${plain[0]-push} in
                pop | apply | branch)
                    target=$(git rev-parse -q --verify "${plain[-1]}^{commit}" || echo 'stash@{0}')
                    changed "$target^" "$target"
                    ;;
                push | save) changed HEAD ;;
            esac
            ;;
        pull)
            GIT_TERMINAL_PROMPT=0 git fetch -q "${plain[@]}" || return
            [[ $rebases || $(git config --type=bool pull.rebase) == true ]] && target=.. || target=...
            changed "HEAD${target}FETCH_HEAD"
            ;;
    esac
}

if found=$(would_change | grep -E -m 3 -- "$guarded"); then
    echo "git $verb: this would change ${found//$'\n'/, }, which is kept as it is in the sandbox" \
        "(Read-only file system). Nothing was done." >&2
    exit 1
fi
on
