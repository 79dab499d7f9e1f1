#!/bin/bash
# Stands before git in the sandbox. It refuses what git would leave half done: to change files that
# are read-only there. And where the guard has put something aside, git is told to take it for
# unchanged, so that no commit deletes it.
# It looks at what a command would do before git begins. A convenience, and no wall: what it
# does not know goes on to git, which then fails in the middle.
real=@REAL@
guarded='@GUARDED@'
choosing='@CHOOSING@'
project=@PROJECT@
words=("$@")

on() { exec -a git "$real" "${words[@]}"; }
git() {
    GIT_OPTIONAL_LOCKS=0 LC_ALL=C "$real" -c core.quotePath=false "${lead[@]}" "$@" 2>&- </dev/null
}
refuse() {
    echo "git $verb: $1. Nothing was done." >&2
    exit 1
}
read_only="in the sandbox (Read-only file system)"

# What a command consists of.

split() {
    lead=()
    while [[ ${1-} == -* ]]; do
        case $1 in
            -h | -v | --help | --version | --*-path | --list-cmds=*) on ;;
            -C | -c | --git-dir | --work-tree | --namespace | --config-env)
                lead+=("$1" "${2-}")
                shift
                ;;
            *) lead+=("$1") ;;
        esac
        shift
    done
    verb=${1-} rest=("${@:2}")
}

# An alias is replaced for the look only. What it runs in a shell cannot be seen.
split_aliases() {
    local said expanded
    for _ in 1 2 3; do
        case $verb in
            add | am | apply | bisect | branch | checkout | cherry-pick | clean | commit) return ;;
            diff | merge | mv | pull | rebase | reset | restore | revert | rm | stage) return ;;
            stash | status | submodule | switch | worktree) return ;;
            '' | blame | cat-file | clone | config | fetch | for-each-ref | gc | grep | help) on ;;
            init | log | ls-files | ls-remote | ls-tree | merge-base | push | reflog | remote) on ;;
            rev-list | rev-parse | show | show-ref | symbolic-ref | tag | update-ref | var) on ;;
        esac
        said=$(git config --get "alias.$verb")
        [[ $said && $said != !* ]] || return
        mapfile -d '' expanded < <(xargs printf '%s\0' <<<"$said" 2>&-)
        split "${lead[@]}" "${expanded[@]}" "${rest[@]}"
    done
}

# Where it works.

find_top() {
    top=$PWD
    if [[ ${lead[*]}${GIT_DIR-}${GIT_WORK_TREE-} || $top/ != "$project"/* ]]; then
        ask_top
        return
    fi
    while [[ ! -e $top/.git ]]; do # without another process: this is for each `git status`
        if [[ -L $top || $top == "$project" ]]; then
            ask_top
            return
        fi
        top=${top%/*}
    done
}
ask_top() {
    top=$(git rev-parse --show-toplevel && echo .) || top=$'\n.'
    top=${top%$'\n.'} # the name of a folder may end in a line feed
}
is_inside() { [[ $top/ == "$project"/* ]]; }
is_own() { [[ $top == "$project" ]]; }
own_dir() { git rev-parse --absolute-git-dir; }
common_dir() {
    local dir
    dir=$(own_dir) || return
    [[ -e $dir/commondir ]] && dir=$dir/$(<"$dir/commondir")
    echo "$dir"
}
has_fixed_settings() {
    local dir
    dir=$(common_dir) && [[ -e $dir/config && ! -w $dir/config ]]
}

# What was put aside.

# The guard has git leave out what it holds: in a repository that is not told so there is nothing.
may_have_held() {
    local at=$top said=''
    while [[ ! -d $at/.git && $at == "$project"/* ]]; do at=${at%/*}; done
    [[ -d $at/.git/info ]] || return 0
    { read -rd '' said <"$at/.git/info/exclude"; } 2>&-
    [[ $said == *'*.held'* ]]
}
was_held() {
    local at=$1 aside
    [[ ! -e $top/$at && ! -L $top/$at ]] || return
    while :; do
        for aside in "$top/$at".held "$top/$at".held-??????; do
            [[ ! -e $top/$at ]] || aside+=/${1#"$at"/} # somebody has made another folder there
            [[ -e $aside || -L $aside ]] && return
        done
        [[ $at == */* ]] || return 1
        at=${at%/*}
    done
}
of_the_guard() { LC_ALL=C grep -zaE -- "${guarded/^/${1-^}}|(${1-^}|/)($choosing)\$"; }

# Take what was held for unchanged, and no more what is back. Both flags together tell our marks
# from those that people make.
mark_held() {
    local entry path gone=() back=()
    there=() torn=()
    while IFS= read -rd '' entry; do
        path=${entry#*$'\t'}
        if [[ -e $top/$path || -L $top/$path ]]; then
            case $entry in
                s*) back+=("$path") ;;
                H*) [[ ! -w $top/$path && ! -L $top/$path ]] || there+=("$path") ;;
            esac
        elif [[ $entry == [HSM]* ]] && was_held "$path"; then
            if [[ $entry == M* ]]; then torn+=("$path"); else gone+=("$path"); fi
        elif [[ $entry == 'H 120000 '* ]] && may_have_held; then
            gone+=("$path") # there is nothing beside the place of a link that was held
        fi
    done < <(git ls-files -zvs --full-name :/ | of_the_guard $'\t')
    ! has_lost_index || put_back_into_index
    flag skip-worktree assume-unchanged "${gone[@]}" || [[ $verb != @(add|stage|commit|stash) ]] ||
        refuse "the index cannot be written, in which ${gone[0]} is to stay"
    flag no-skip-worktree no-assume-unchanged "${back[@]}"
    if ((${#gone[@]})) || [[ -f $top/.git ]]; then leave_out; fi
}
# Who adds all, or goes on without an index, has not asked for what was held to be deleted. But what
# a merge takes away is to go.
has_lost_index() {
    local dir each
    [[ $verb == @(add|stage|commit|stash) ]] && may_have_held || return
    if [[ $verb != @(add|stage) || " ${rest[*]} " != *' '@(-*([a-z])A*|--all|.|./|:/)' '* ]]; then
        [[ ! ${GIT_INDEX_FILE-} ]] && ! read -rd '' < <(tracked) && git rev-parse -q --verify HEAD
        return
    fi
    dir=$(own_dir)
    for each in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD REBASE_HEAD SQUASH_MSG; do
        [[ ! -e $dir/$each ]] || return
    done
} >/dev/null
# A branch that has not begun goes on with what was there before.
put_back_into_index() {
    local entry path head lost=()
    local -A known=()
    head=$(git rev-parse -q --verify HEAD) ||
        head=$(sed -n '$s/^[^ ]* \([^ ]*\) .*/\1/p' "$(own_dir)/logs/HEAD" 2>&-)
    while IFS= read -rd '' path; do known[$path]=1; done < <(tracked | of_the_guard)
    while IFS= read -rd '' entry; do
        path=${entry#*$'\t'}
        if [[ ! ${known[$path]-} ]] && was_held "$path"; then lost+=("$entry") gone+=("$path"); fi
    done < <(git ls-tree -rz --full-tree "$head" | of_the_guard $'\t')
    ((${#lost[@]})) || return
    printf '%s\0' "${lost[@]}" | "$real" "${lead[@]}" update-index -z --index-info 2>&-
}
# The guard may put something aside while git looks. So what is still there and unchanged is marked
# for as long as git runs, unless the command names it.
on_without_what_is_there() {
    local path same=()
    local -A differs=()
    [[ $verb != stash || ${rest[0]-push} == @(push|save|-*) ]] || return
    printf '%s\n' "${rest[@]}" "${PWD#"$top"}" | LC_ALL=C grep -qaE -- "$guarded" && return
    while IFS= read -rd '' path; do differs[$path]=1; done < <(changed)
    for path in "${there[@]}"; do
        [[ ${differs[$path]-} && -e $top/$path ]] || same+=("$path")
    done
    trap : INT # git ends by it, and what follows is still to be done
    flag skip-worktree assume-unchanged "${same[@]}"
    (on)
    local status=$?
    mark_held
    exit "$status"
}
flag() {
    local dir each
    (($# > 2)) || return 0
    dir=$(own_dir)
    for each in "$1" "$2"; do # git takes one of them at a time
        printf '%s\0' "${@:3}" | "$real" -C "$top" --git-dir="$dir" --work-tree="$top" \
            update-index "--$each" -z --stdin || return
    done 2>&-
}
# As the guard does, which does not know where a submodule has its settings.
leave_out() {
    local dir said=''
    may_have_held && dir=$(common_dir) && [[ -d $dir/info ]] || return
    { read -rd '' said <"$dir/info/exclude"; } 2>&-
    [[ $said == *'*.held'* ]] || printf '\n%s\n' '*.held' '*.held-*' >>"$dir/info/exclude"
}

# What would be committed as deleted, or else changed. Nothing is marked in the index of the project
# itself.
would() {
    local word status='[AM]' added=add
    [[ $1 != delete ]] || status=D added=remove
    for word in "${rest[@]}"; do
        case $word in
            -p | --patch | --interactive) return ;;
            -[ei] | --edit) [[ $verb == commit ]] || return ;;
        esac
    done
    if [[ $verb == commit ]]; then
        git commit --dry-run --porcelain -z "${rest[@]}" | sed -zn "s/^$status. //p"
    else
        git add --dry-run "${rest[@]}" | sed -n "s/^$added '\(.*\)'\$/\1/p" | tr '\n' '\0'
    fi
}
staged_deletions() { git diff -z --no-relative --cached --name-only --diff-filter=D HEAD; }
refuse_to_delete_held() {
    local path held=()
    may_have_held || return
    while IFS= read -rd '' path; do
        was_held "$path" && held+=("$path")
    done < <({ tracked && staged_deletions; } | of_the_guard)
    refuse_to_delete "${held[@]}"
    refuse_to_undo
}
# What was there before has come back into its place.
refuse_to_undo() {
    local path aside
    while IFS= read -rd '' path; do
        for aside in "$top/$path".held "$top/$path".held-??????; do
            [[ ! -f $aside ]] || cmp -s "$aside" "$top/$path" ||
                refuse "this would commit $path as it was before, and what was in its place may be \
the user's (${aside##*/}). Name the files that you mean, have it put back with \`escalate\`, or \
delete the *.held if it is not wanted"
        done
    done < <(would change | of_the_guard)
}
refuse_to_delete() {
    local path
    local -A kept=()
    (($#)) || return
    for path; do kept[$path]=1; done
    while IFS= read -rd '' path; do
        [[ ${kept[$path]-} ]] && git cat-file -e "HEAD:$path" &&
            refuse "this would delete $path from the repository, but it is only out of the way in \
the sandbox (*.held). Name the files that you mean, have it renamed back with \`escalate\`, or \
delete the *.held if it is to go"
    done < <(would delete)
}

# What would be changed.

changed() { git diff -z --no-ext-diff --no-relative --name-only "$@"; }
tracked() { git ls-files -z --full-name :/; }
commit() {
    local name=$1
    [[ $name != :/?* ]] || name=$(git rev-parse -q --verify "$name") # a search ends with the word
    git rev-parse -q --verify "$name^{commit}" && return
    [[ $verb == checkout || $verb == switch ]] || return
    remote_branch "$1"
}
remote_branch() {
    local found
    found=$(git for-each-ref --count=1 --format='%(objectname)' "refs/remotes/*/$1")
    [[ $found ]] && echo "$found"
}

read_rest() {
    local word found skip='' after=''
    plain=() targets=() paths=() ranges=()
    moves='' staged='' rebases='' source='' creates='' tracks=''
    updates='' onto='' roots='' orphan=''
    for word in "${rest[@]}"; do
        if [[ $skip == source ]]; then
            source=$word skip=''
        elif [[ $skip == onto ]]; then
            onto=$(commit "$word") skip=''
        elif [[ $skip == orphan ]]; then
            orphan=$word skip=''
        elif [[ $skip ]]; then
            skip=''
        elif [[ $after ]]; then
            paths+=("$word")
        else
            case $word in
                --) after=1 ;;
                -h | --help) on ;;
                --abort | --continue | --quit | --skip | --edit-todo | --show-current-patch) on ;;
                --hard | --merge | --keep) moves=1 ;;
                -S | --staged) staged=1 ;;
                -W | --worktree) staged='' ;;
                -r | --rebase | --rebase=*) rebases=1 ;;
                -u* | -[!-]*u*) updates=1 ;;
                --source=*) source=${word#*=} ;;
                --onto=*) onto=$(commit "${word#*=}") ;;
                --onto) skip=onto ;;
                --root) roots=1 ;;
                --orphan=*) orphan=${word#*=} ;;
                --orphan) skip=orphan ;;
                -s | --source)
                    case $verb in
                        restore) skip=source ;;
                        merge | pull | rebase) skip=1 ;;
                    esac
                    ;;
                -b | -B | -c | -C | --create | --force-create) skip=1 creates=1 ;;
                -m) [[ $verb != @(merge|cherry-pick|revert|stash) ]] || skip=1 ;;
                -F | -X | --strategy | --strategy-option | --message | --conflict) skip=1 ;;
                -t | --track | --track=*) tracks=1 ;;
                --no-track) tracks=no ;;
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
}

# There git says that it is up to date.
is_on_top() {
    [[ ${targets[*]} && " ${rest[*]}" != *' -'[!q]* ]] &&
        git merge-base --is-ancestor "${targets[0]}" "$1" &&
        [[ ! $(git rev-list --merges -n1 "${targets[0]}..$1") ]]
}

would_change() {
    local target
    case $verb in
        checkout | switch)
            if [[ $orphan && $verb == switch ]]; then
                tracked
            elif ((${#paths[@]})); then
                changed ${targets[0]+"${targets[0]}"} -- "${paths[@]}"
            elif ((${#targets[@]})); then
                changed HEAD "${targets[0]}"
            fi
            ;;
        restore) [[ $staged ]] || changed ${source:+"$source"} -- "${plain[@]}" "${paths[@]}" ;;
        reset) [[ ! $moves ]] || changed "${targets[0]-HEAD}" || tracked ;;
        merge) for target in "${targets[@]}"; do changed "HEAD...$target"; done ;;
        rebase)
            if [[ $roots ]]; then
                target=${targets[0]-HEAD}
                [[ $onto ]] || tracked # it begins with nothing
            else
                target=${targets[1]-HEAD} onto=${onto:-${targets[0]-@\{u\}}}
            fi
            [[ ! $onto ]] || is_on_top "$target" || changed "$onto" "$target"
            changed HEAD "$target"
            ;;
        read-tree)
            [[ " ${rest[*]}" == *' '@(-n|--dry-run|--prefix)* ]] && return
            [[ ! $updates || ! ${plain[*]} ]] || changed "${plain[-1]}"
            ;;
        am | apply) patched ;;
        cherry-pick | revert)
            for target in "${targets[@]}"; do changed "$target^" "$target"; done
            for target in "${ranges[@]}"; do git log -z --format= --name-only "$target"; done
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
            target=...
            [[ $rebases || $(git config --type=bool pull.rebase) == true ]] && target=..
            changed "HEAD${target}FETCH_HEAD"
            ;;
        bisect) bisected ;;
    esac
}

# A patch may come through a pipe, which can be read once.
read_patch() {
    local word skip='' files=() kept
    how=() patch=()
    for word in "${rest[@]}"; do
        if [[ $skip ]]; then
            [[ $skip != how ]] || how+=("$word")
            skip=''
            continue
        fi
        case $word in
            -h | --help | --continue | --quit | --skip | --abort | --retry | -r | --resolved) on ;;
            --show-current-patch* | --numstat | --stat | --summary | --check | --cached) on ;;
            --build-fake-ancestor* | -i | --interactive) on ;;
            -p | --directory | --include | --exclude) how+=("$word") skip=how ;;
            -p?* | --directory=* | --include=* | --exclude=*) how+=("$word") ;;
            -C | --whitespace | --patch-format | --quoted-cr | --empty) skip=1 ;;
            -)
                files=()
                break
                ;;
            -*) ;;
            *) files+=("$word") ;;
        esac
    done
    if ((${#files[@]})); then
        patch=("${files[@]}")
    elif [[ -e /dev/stdin && ! -t 0 && ! -e $(own_dir)/rebase-apply ]] && kept=$(mktemp); then
        cat >"$kept" || refuse "there is no place for a copy of the patch"
        exec <"$kept" {look}<"$kept"
        rm -f "$kept"
        patch=("/dev/fd/$look")
    fi
}
patched() {
    local at each top_of=()
    [[ $verb == apply ]] || top_of=(-C "$top")
    for at in "${!lead[@]}"; do
        [[ ${lead[at]} != -C ]] || cd "${lead[at + 1]}" || return
    done
    ((${#patch[@]})) || return
    for each in "${patch[@]}"; do [[ -f $each ]] || return; done
    for each in '' -R; do # both the names before and those after
        cat -- "${patch[@]}" | "$real" "${top_of[@]}" apply --numstat -z "${how[@]}" $each
    done 2>&- | sed -z 's/^[^\t]*\t[^\t]*\t//'
}

# A search may check out any commit between the good ones and the bad one: what all of them share
# is what no step from one to the next changes.
bisected() {
    local dir bad good start='' names=(bad good)
    dir=$(own_dir) && [[ ! -e $dir/BISECT_HEAD ]] || return
    [[ -e $dir/BISECT_START ]] && start=$(<"$dir/BISECT_START")
    [[ -e $dir/BISECT_TERMS ]] && mapfile -t names <"$dir/BISECT_TERMS"
    bad=$(git rev-parse -q --verify "refs/bisect/${names[0]}")
    mapfile -t good < <(git for-each-ref --format='%(objectname)' "refs/bisect/${names[1]}-*")
    case $step in
        start)
            [[ " ${rest[*]} " == *' --no-checkout '* ]] && return
            [[ $start ]] && changed HEAD "$start"
            bad=${targets[0]-} good=("${targets[@]:1}")
            ;;
        reset) [[ $start ]] && changed HEAD "${targets[0]-$start}" ;;&
        reset | log | view | visualize | help | terms | replay) return ;;
        bad | new | "${names[0]}") bad=${targets[0]-HEAD} ;;
        good | old | "${names[1]}") ((${#targets[@]})) && good+=("${targets[@]}") || good+=(HEAD) ;;
    esac
    [[ $bad ]] && ((${#good[@]})) || return
    changed HEAD "$bad"
    git log -z -m --format= --name-only "$bad" --not "${good[@]}"
}

# In the project's own work tree what is not there yet would be put aside. In others that does no
# harm: there only what is there and read-only cannot be changed.
is_kept() {
    local at=$top/$1
    is_own && [[ $verb != @(am|apply) ]] && return # what a patch adds is put aside like any other
    while [[ ! -e $at && ! -L $at ]]; do at=${at%/*}; done
    [[ ! -L $at && ! -w $at ]]
}
refuse_to_change_kept() {
    local path found=()
    while IFS= read -rd '' path && ((${#found[@]} < 3)); do
        is_kept "$path" && [[ " ${found[*]} " != *" $path "* ]] && found+=("$path")
    done < <(would_change | LC_ALL=C grep -zaE -- "$guarded")
    ((${#found[@]} == 0)) && return
    printf -v path '%s, ' "${found[@]}"
    refuse "this would change ${path%, }, which is kept as it is $read_only"
}

# What would write settings.

branch() {
    local word
    for word in "${rest[@]}"; do
        case $word in
            -u* | --set-upstream-to*) return ;;
            --move | --copy | -[!-]*[mMcC]* | -[mMcC]*)
                has_fixed_settings && refuse "a branch cannot be renamed or copied without the \
settings of git, which are kept as they are $read_only; \`git branch NEW OLD\` makes another one"
                ;;
            -f | --force | -q | --quiet | -t | --track* | --create-reflog) ;;
            -*) return ;;
        esac
    done
    read_rest
    ((${#plain[@]} > 1)) && creates=1 plain=("${plain[@]:1}")
    leave_untracked
}
would_track() {
    if [[ $tracks ]]; then
        [[ $tracks != no ]]
    elif [[ $creates ]]; then
        [[ $(git rev-parse --symbolic-full-name "${plain[0]-HEAD}") == refs/remotes/* ]]
    else
        ((${#plain[@]} == 1)) && [[ $verb != branch && ! -e ${plain[0]} ]] &&
            ! git rev-parse -q --verify "${plain[0]}^{commit}" && remote_branch "${plain[0]}"
    fi >/dev/null
}
# Git would say several times that it cannot write settings, and then that it has.
leave_untracked() {
    local at
    would_track && has_fixed_settings || return
    for at in "${!words[@]}"; do
        case ${words[at]} in -t | --track | --track=*) words[at]=--no-track ;; esac
    done
    words=(-c branch.autoSetupMerge=false "${words[@]}")
    echo "git $verb: the new branch is not set up to track another one: settings of git are" \
        "read-only in the sandbox." >&2
}
# `add` does all else, and Hermes tells what was not written; `init` fails before it begins.
submodule() {
    [[ " ${rest[*]} " == *' deinit '* && $(git config --get-regexp '^submodule\..*\.url$') ]] &&
        has_fixed_settings &&
        refuse "a submodule cannot be taken out of the settings of git, which are kept $read_only"
}
worktree() {
    local tree top dir stays="stays as it is $read_only"
    case ${rest[0]-} in
        prune)
            [[ " ${rest[*]} " == *' '@(-n|--dry-run)' '* ]] && return
            dir=$(common_dir)/worktrees
            while read -r tree; do
                [[ -w $dir/$tree && (! -e $dir/$tree/commondir || -w $dir/$tree/commondir) ]] ||
                    refuse "what git keeps of $tree $stays"
            done < <(LC_ALL=C "$real" "${lead[@]}" worktree "${rest[@]}" -nv 2>&1 |
                sed -n 's|^Removing worktrees/\(.*\): .*|\1|p')
            ;;
        remove)
            for tree in "${rest[@]:1}"; do
                dir=$(git -C "$tree" rev-parse --absolute-git-dir) || continue
                top=$(git -C "$tree" rev-parse --show-toplevel)
                [[ -e $dir/commondir ]] || continue
                [[ -w $dir/commondir && -w $top/.git ]] || refuse "what git keeps of $tree $stays"
                is_inside && (lead+=(-C "$tree") && may_have_held && mark_held)
            done
            ;;
    esac
}
rebase() {
    local word dir
    for word in "${rest[@]}"; do
        case $word in
            -x* | -[fikmnqv]*x* | --ex*)
                dir=$(own_dir)
                is_own || [[ $dir == "$project"/* ]] || return
                refuse "what a rebase would run later cannot be stored $read_only. Run it yourself \
after each step (\`GIT_SEQUENCE_EDITOR=\"sed -i '/^pick/a break'\" git rebase -i …\`), \
or escalate"
                ;;
        esac
    done
}

split "$@"
split_aliases
find_top
case $verb in branch | submodule | worktree | rebase) "$verb" ;; esac
[[ $top ]] && is_inside || on
case $verb in
    add | stage | commit | stash)
        if is_own; then
            [[ $verb == stash ]] || refuse_to_delete_held
        else
            mark_held
            [[ $verb == stash ]] || refuse_to_delete "${torn[@]}"
            ((${#there[@]} == 0)) || on_without_what_is_there
        fi
        ;;
    *) is_own || ! may_have_held || mark_held ;;
esac
case $verb in
    checkout | switch | restore | reset | merge | rebase | pull | cherry-pick | revert | stash | \
        bisect | read-tree)
        [[ $verb != bisect ]] || step=${rest[0]-} rest=("${rest[@]:1}")
        read_rest
        refuse_to_change_kept
        [[ $verb != checkout && $verb != switch ]] || leave_untracked
        ;;
    am | apply)
        read_patch
        refuse_to_change_kept
        ;;
esac
on
