"""Rules as data: a command, the shape of its arguments, why that needs a person.

A row is `names ; shape ; reason ; grant`. The shape is `verbs : flags : unless`, and
each part may be missing:

- `verbs`: alternatives separated by commas, each one or more words that the operands
  begin with; `*` and `?` are globs. Global options in front of a verb do not hide it.
  A `!` in front: any verb but these.
- `flags`: words, one of which must be given. `-f` is a letter of a cluster, `--force` a
  long option or an abbreviation of it, `--force*` every long option that begins so,
  `~regex` is searched in the whole line, anything else is a glob over single arguments.
- `unless`: flags that make it harmless.

The grant is what a person's answer allows from then on: by default the command's name
and its verb or flag; `@` is the name alone.

If the verb is not known, or an unquoted argument that is not known could become one of
the flags, the command asks as well.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

from msgspec import Struct

from hermes.execution.policy.command import Finding, ShellCommand
from hermes.execution.policy.reader.expansion import COMPUTED, UNKNOWN, is_unknown

# Options that take a value and may stand before a verb. Of a command that is not listed,
# any word behind an option may be its value or the verb.
_VALUED = {
    "git": "-C -c --git-dir --work-tree --namespace --exec-path --config-env",
    "docker": "-H -c -l -f -p --context --host --config --log-level --tlscacert --tlscert --tlskey "
    "--file --project-name --profile --env-file --project-directory",
}
_VALUED |= dict.fromkeys(("podman", "nerdctl"), _VALUED["docker"] + " --connection --url --root")


class _Rule(Struct, frozen=True):
    verbs: tuple[tuple[str, ...], ...]
    negated: bool
    flags: tuple[str, ...]
    unless: tuple[str, ...]
    reason: str
    grant: str


class RuleTable:
    """Rows, indexed by command name."""

    def __init__(self, text: str) -> None:
        self._rules: dict[str, list[_Rule]] = {}
        for row in text.replace("\n  ", " ").split("\n"):
            if row and row[0] != "#":
                names, rule = _parse(row)
                for name in names:
                    self._rules.setdefault(name, []).append(rule)

    def check(self, command: ShellCommand) -> Iterator[Finding]:
        """Yield a finding for every rule that fits."""
        name, args = command.name, command.args
        rules = self._rules.get(name)
        if rules is None:
            return
        readings = _readings(name, args)
        if readings and is_unknown(readings[0][0][0][:1]) and any(r.verbs for r in rules):
            yield Finding(f"what {name} would do is computed")
        for rule in rules:
            for operands, rest in (rule.verbs and readings) or [([], args)]:
                verb = _verb(rule, operands)
                if verb is None or any(_given(f, rest) for f in rule.unless):
                    continue
                flag = next((f for f in rule.flags if _given(f, rest)), None)
                if flag is not None or not rule.flags:
                    shown = verb or (flag if flag and flag[0] not in "*~" else "")
                    grant = rule.grant or f"{name} {shown}".strip()
                    yield Finding(rule.reason, name if grant == "@" else grant)
                elif rule.verbs and _may_be_options(rest):
                    yield Finding(f"the options of {name} {verb} are computed")


def _may_be_options(args: tuple[str, ...]) -> bool:
    """Return whether a word that is not known, and is no option's value, may become an option."""
    values = ("", *args)
    return any(
        a[:1] in {UNKNOWN, COMPUTED} and before[:1] != "-"
        for before, a in zip(values, args, strict=False)
    )


def _parse(row: str) -> tuple[list[str], _Rule]:
    names, shape, reason, grant = (*(c.strip() for c in row.split(" ;")), "")[:4]
    verbs, flags, unless = (*(p.strip() for p in re.split(r"(?:^|\s):(?=\s|$)", shape)), "", "")[:3]
    negated = verbs.startswith("!")
    paths = tuple(tuple(v.split()) for v in verbs.lstrip("!").split(",") if v)
    return names.split(), _Rule(
        paths, negated, tuple(flags.split()), tuple(unless.split()), reason, grant
    )


def _readings(name: str, args: tuple[str, ...]) -> list[tuple[list[str], tuple[str, ...]]]:
    """Return the operands from each place on where the verb may stand, and what follows there."""
    valued = _VALUED.get(name)
    known = valued.split() if valued is not None else []
    operands: list[int] = []
    starts: list[int] = []
    searching, maybe_value, skip = True, False, False
    for index, arg in enumerate(args):
        if skip:
            skip = False
        elif len(arg) > 1 and arg[0] == "-":
            skip = arg in known
            maybe_value = valued is None and "=" not in arg
        else:
            operands.append(index)
            if searching:
                starts.append(index)
            searching = searching and maybe_value and len(starts) < 4
            maybe_value = False
    return [([args[i] for i in operands if i >= s], args[s + 1 :]) for s in starts]


def _verb(rule: _Rule, operands: list[str]) -> str | None:
    """Return the verb of the rule that the operands begin with."""
    for path in rule.verbs:
        if len(operands) >= len(path) and all(
            fnmatchcase(o.lower(), v) for o, v in zip(operands, path, strict=False)
        ):
            return None if rule.negated else " ".join(operands[: len(path)])
    return "" if rule.negated or not rule.verbs else None


def _given(flag: str, args: tuple[str, ...]) -> bool:
    if flag[0] == "~":
        return (
            _compiled(flag[1:]).search(" ".join(a.replace(" ", "\x03") for a in args)) is not None
        )
    if len(flag) == 2 and flag[0] == "-" and flag != "--":
        return any(a[:1] == "-" and a[1:2] != "-" and flag[1] in a[1:] for a in args)
    if flag[:2] == "--" and len(flag) > 2 and flag[-1] != "*" and "=" not in flag:
        return any(a[:2] == "--" and len(a) > 2 and flag.startswith(a.split("=")[0]) for a in args)
    return any(fnmatchcase(a.lower(), flag.lower()) for a in args)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile on first use: most runs meet few of the commands in the tables."""
    return re.compile(pattern)


COMMANDS = RuleTable(r"""
# Deletes
find gfind ; : -delete ; find deletes what it finds ; find -delete
shred wipe srm scrub ; ; it destroys data for good ; shred
rsync ; : --delete --delete* --remove-source-files ; rsync deletes files ; rsync --delete
gio ; trash, remove ; it moves files to the trash
trash trash-put ; ; it moves files to the trash
del erase rd ; : /s /q /f ; it deletes recursively or without asking
Remove-Item ri ; : -r* -fo* ; it deletes recursively or without asking
mv ; : /dev/null ; it throws files away ; mv /dev/null
rclone ; delete, deletefile, purge, sync, cleanup, rmdir, rmdirs ; rclone deletes files
aws ; s3 rm, s3 rb, * delete-*, * terminate-instances ; it deletes cloud resources ; aws delete
gcloud az gsutil doctl ; delete, rm, * delete, * rm, * * delete, * * * delete
  ; it deletes cloud resources
kubectl oc helm ; delete, drain, uninstall, cordon ; it deletes or drains cluster resources
terraform tofu pulumi ; destroy ; it destroys infrastructure
terraform tofu pulumi ; apply : -auto-approve --auto-approve -destroy ; it destroys infrastructure
vagrant ; destroy ; it destroys a machine
redis-cli ; : flushall flushdb shutdown ; it empties Redis ; redis-cli flush
mongo mongosh ; : *dropDatabase* *.drop(* *deleteMany* *remove(* ; it drops data ; mongo drop
dropdb dropuser ; ; it drops a database or user
mysqladmin ; !status, ping, version ; it drops a database or user

# Git
git ; reset : --hard --merge --keep ; it throws uncommitted work away ; git reset --hard
git ; push : --force --force* --mirror --prune --delete -f -d +* :*
  ; it overwrites or deletes what is on the server ; git push --force
git ; clean : -f --force ; it deletes untracked files ; git clean -f
git ; branch : -D -f --force ; it deletes or moves a branch that is not merged ; git branch -D
git ; checkout : -f --force -- . :/* ; it throws uncommitted work away ; git checkout --
git ; restore : * : --staged ; it throws uncommitted work away ; git restore
git ; restore : -W --worktree ; it throws uncommitted work away ; git restore
git ; switch : -f --force --discard-changes -C ; it throws uncommitted work away
  ; git switch --force
git ; stash drop, stash clear ; it deletes stashed work ; git stash drop
git ; filter-branch, filter-repo ; it rewrites history ; git filter-branch
git ; reflog expire, reflog delete ; it removes the way back ; git reflog expire
git ; gc : --prune=now --prune=all ; it removes the way back ; git gc
git ; update-ref : -d ; it deletes a reference ; git update-ref -d
git ; worktree remove : -f --force ; it deletes a working tree
git ; rm : -r -f ; it deletes files ; git rm -r
git ; submodule deinit : -f --force --all ; it deletes files
git ; config : core.hooksPath core.pager core.editor core.sshCommand core.fsmonitor
  core.attributesFile credential.* filter.* diff.*external diff.*textconv include* url.* !*
  : --get --get-all --list --unset ; it changes what git runs ; git config
git ; config : --global --system : --get* --list -l user.* init.defaultBranch pull.* push.* color.*
  ; it changes git for the whole account ; git config --global
git ; clone, fetch, pull, ls-remote, submodule : ext::* ; the address is a command ; git ext::
gh ; repo delete, repo archive, release delete, secret set, secret delete, auth token
  ; it deletes or changes what is on GitHub
gh ; api : DELETE PUT PATCH -XDELETE -XPUT -XPATCH --method=DELETE --method=PUT --method=PATCH
  ; it deletes or changes what is on GitHub

# Services, processes, schedules
systemctl ; stop, restart, try-restart, reload-or-restart, disable, mask, kill, enable, edit, link,
  revert, set-default, isolate, daemon-reexec, set-property, start, reset-failed, unmask,
  import-environment, set-environment ; it changes which services run
service rc-service ; * stop, * restart, * force-reload, * start ; it changes which services run
  ; service stop
initctl ; stop, restart ; it changes which services run
supervisorctl pm2 monit sv ; stop, restart, delete, kill, shutdown, down, remove ; it stops services
launchctl ; unload, remove, bootout, stop, kill, disable, load, bootstrap, kickstart, submit, setenv
  ; it changes which services run
brew ; services stop, services restart, services kill ; it stops services
kill ; : -9 -KILL -SIGKILL 9 KILL SIGKILL --signal=9 --signal=KILL --signal=SIGKILL
  ; it kills without a chance to tidy up ; kill -9
kill ; : 1 -[2-9][0-9]* -[0-9][0-9][0-9]* ; it signals the first process or a group ; kill group
pkill killall ; ; it signals every process of a name ; pkill
skill snice fuser ; : -k -KILL -9 ; it kills processes
taskkill taskkill.exe tskill Stop-Process ; ; it kills processes ; taskkill
crontab ; : -r ; it changes the schedule ; crontab
crontab ; : * : -l ; it changes the schedule ; crontab
at batch ; : : -l -c -V ; it schedules commands ; at
atrm ; ; it changes the schedule
schtasks schtasks.exe ; : /create /delete /change /run ; it changes the schedule ; schtasks
systemd-run ; ; it runs something outside of this session
loginctl ; terminate-*, kill-* ; it ends sessions
tmux ; kill-server ; it ends every terminal session
virsh VBoxManage ; destroy, undefine, shutdown, controlvm, unregistervm
  ; it stops or deletes machines
xe lxc incus multipass ; delete, stop, vm-shutdown, purge ; it stops or deletes machines
hermes ; gateway run, gateway start, gateway stop, gateway restart, gateway uninstall,
  gateway install, gateway update, update, uninstall, reset, stop, restart, pairing approve,
  pairing revoke, pairing clear-pending, hooks enable, hooks disable, config set, config edit,
  config unset, auth, login, logout, setup, profile delete, profile use, agent remove,
  agent delete, agents remove, agents delete, sessions delete, sessions prune, cron remove,
  cron delete, cron add, cron create, skills install, skills add, plugins install, plugins add,
  plugins enable, backup restore, migrate, secrets
  ; it stops, updates or reconfigures Hermes itself
hermes ; : --yolo ~^approvals\s+(?!test|list|show) ; it stops, updates or reconfigures Hermes itself

# Containers
docker podman nerdctl ; stop, kill, rm, rmi, prune, restart, pause, update, container stop,
  container kill, container rm, container prune, container restart, container pause, image rm,
  image prune, volume rm, volume prune, network rm, network prune, system prune, builder prune,
  buildx rm, buildx prune, stack rm, service rm, service update, swarm leave, swarm update
  ; it stops or deletes containers, images or volumes
docker podman nerdctl ; compose down, compose rm, compose kill, compose stop, compose restart
  ; it stops or deletes containers ; docker compose down
docker-compose podman-compose ; down, rm, kill, stop, restart ; it stops or deletes containers
  ; docker compose down
docker podman nerdctl ; run, create, container run, container create : --privileged --cap-add
  --device --security-opt ~--(?:pid|userns|ipc)[=\s]host
  ; the container could reach the host ; docker run --privileged
docker podman nerdctl ; : ~--mount[=\s]\S*(?:source|src)=(?:/|/etc|/root|/home|/usr|/var)(?:,|\s|$)
  ~(?:-v|--volume)[=\s]?/(?:etc|root|usr|boot|var|dev|proc|sys|var/run/docker\.sock|home(?:/[^/:\s]+)?)?:
  ; the container gets the host's files ; docker run -v /
docker podman nerdctl ; : *docker.sock* ; the container could control Docker ; docker.sock

# More rights
sudo doas pkexec su runuser gosu su-exec sudoedit run0 machinectl dzdo pfexec runas ;
  ; it runs with another user's rights ; @
useradd adduser userdel deluser usermod groupadd groupdel groupmod gpasswd chpasswd newusers vipw
  visudo chsh chfn dscl pw passwd htpasswd ; : : -S --status --help ; it changes accounts ; @
net net.exe ; user, localgroup : /add /delete ; it changes accounts ; net
iptables ip6tables ; : * : -L -S --list ; it changes the firewall ; @
nft ; !list ; it changes the firewall ; @
ufw ; !status, version, app ; it changes the firewall ; @
firewall-cmd ; : --add* --remove* --set* --reload --permanent --panic* --complete*
  ; it changes the firewall ; @
pfctl ; : -d -F -f ; it changes the firewall ; @
iptables-restore ip6tables-restore ; ; it changes the firewall ; iptables
ip ; * add, * del, * delete, * change, * replace, * flush, * set, * append
  ; it changes the network ; @
route ; add, del, delete, flush, change ; it changes the network ; @
ifconfig ; * down, * up, * [0-9]*, * delete, * ether ; it changes the network ; @
nmcli ; * add, * delete, * modify, * down, * off, * up, * edit ; it changes the network ; @
resolvectl hostnamectl timedatectl localectl scutil networksetup ; set*, dns * *
  ; it changes system settings ; @
networksetup scutil ; : -set* --set* ; it changes system settings ; @
modprobe ; : : --show* -c -n ; it changes the kernel ; @
insmod rmmod kmod depmod ; !list ; it changes the kernel ; @
sysctl ; : -w --write -p --system *=* ; it changes the kernel ; sysctl
setenforce apparmor_parser aa-disable aa-complain aa-teardown semanage setsebool ;
  ; it weakens access control ; @
csrutil spctl ; : disable --master-disable --global-disable ; it weakens access control ; @
mount umount losetup swapoff swapon cryptsetup ; : * ; it changes what is mounted ; @
chroot unshare nsenter bwrap ; : * ; it changes the view of the system ; @
strace gdb ltrace ; : -p --pid --attach ; it looks into another process ; @
reg reg.exe ; add, delete, import ; it changes the registry ; reg
bcdedit vssadmin diskpart ; ; it changes how the system starts or is kept ; @
update-alternatives ldconfig update-grub grub-install efibootmgr dpkg-reconfigure dpkg-divert
  update-rc.d chkconfig ; : : --list --query --display --get-selections -p
  ; it changes the system ; @
security ; find-*, dump-*, delete-*, unlock-*, export-*, add-* ; it uses the keychain ; @
gpg gpg2 ; : --export-secret* --delete-secret* --delete-key* ; it exports or deletes keys ; @
ssh-keygen ; : -R ; it removes known hosts ; ssh-keygen
ssh-copy-id ; ; it gives a key access
xhost ; : +* ; it opens the display to everybody ; xhost
chmod ; : ~(?:^|\s)[0-7]?[0-7][0-7][2367](?:\s|$)
  ~(?:^|[\s,])(?:[ug]*[oa][ugoa]*[+=][rx]*w|[+=][rx]*w\S*o)
  ; everybody could write there ; chmod 777
chmod ; : ~(?:^|\s)(?:[2467][0-7]{3}|[ug]*[+=][rwxX]*s\S*)(?:\s|$)
  ; it sets the user or group id bit ; chmod +s
chmod ; : -R --recursive ; it changes the mode of a whole tree
chown chgrp ; : -R --recursive ; it changes the owner of a whole tree
chown ; : root root:* 0 0:* ; it gives files to root ; chown root
setcap ; ; it gives a program privileges
icacls ; : /grant* ; it opens access to others ; icacls /grant
setfacl ; : -R ~(?:^|\s|,)(?:o|other)::?[rx]*w ; it opens access to others ; setfacl

# Disks and packages
fdisk sfdisk cfdisk parted gdisk sgdisk partprobe ; : * : -l --list -s print
  ; it changes partitions
lvremove vgremove pvremove lvreduce lvresize vgreduce pvcreate vgcreate lvcreate ;
  ; it changes volumes
zpool zfs btrfs ; destroy, create, rollback, labelclear, remove, offline, * delete
  ; it changes volumes
mdadm ; : --stop --zero* --remove --fail --create -S ; it changes disks ; mdadm
badblocks ; : -w -n ; it writes over a disk ; badblocks -w
fsck e2fsck xfs_repair tune2fs resize2fs debugfs ; : * ; it changes a file system
hdparm smartctl nvme ; : --security* --trim* --write* --make-bad* -Y -s format ; it changes a disk
dd dcfldd ; : ~(?:^|\s)if=/dev/(?!zero|null|random|urandom|stdin) ; it reads a raw device
  ; dd if=/dev
apt apt-get aptitude ; remove, purge, autoremove, dist-upgrade, full-upgrade, clean, autoclean
  ; it removes packages or upgrades the system
dpkg ; : -r -P --remove --purge --force* ; it removes packages
yum dnf microdnf zypper ; remove, erase, autoremove, rm, downgrade, swap ; it removes packages
rpm ; : -e --erase --nodeps ; it removes packages
pacman ; : -R ; it removes packages ; pacman -R
apk ; del ; it removes packages
brew port snap flatpak nix-env ; uninstall, remove, rm, autoremove, cleanup ; it removes packages
nix-env ; : -e --uninstall ; it removes packages
pip pip3 pipx uv conda mamba ; uninstall, remove, pip uninstall, env remove ; it removes packages
npm pnpm yarn bun ; uninstall, remove, rm, un, unpublish, publish, deprecate, cache clean
  ; it removes or publishes packages
npm pnpm yarn ; config set : registry* script-shell* ignore-scripts* //* ; it changes what npm runs
  ; npm config set
gem cargo go composer ; uninstall, yank, publish, remove ; it removes or publishes packages
go ; clean : -modcache ; it removes or publishes packages
twine ; upload ; it publishes a package
winget choco scoop ; uninstall, remove ; it removes packages
msiexec ; : /x* ; it removes packages
pip pip3 ; install : *hermes-gateway* ; it updates Hermes itself ; update hermes
pip pip3 ; : --trusted-host ~--(?:extra-)?index-url[=\s]http: ~-i\s*http:
  ; packages would come from an unsafe source ; pip --index-url
defaults ; write, delete ; it changes settings ; defaults write
dconf gsettings ; reset, write, set ; it changes settings
xattr ; : com.apple.quarantine ; it removes a protection ; xattr -d

# Commands that run other commands, or change what others run
vim vi nvim ex ed view ; : ~(?:^|\s)(?:-c|--cmd|\+)\x03?\S*! ; the editor runs a command ; vim !
tar bsdtar ; : --checkpoint-action --to-command --use-compress-program --info-script
  --new-volume-script --rsh-command ; tar runs a command ; tar exec
tar ; : -P --absolute-names --overwrite* --unlink-first --recursive-unlink
  ; tar may replace files anywhere ; tar -P
rsync ; : ~(?:^|\s)(?:-e|--rsh)[=\s]?\x03?(?!ssh\b) ; rsync runs a command ; rsync -e
zip ; : -TT --unzip-command ; zip runs a command ; zip -TT
ssh scp sftp ; : ~(?i)(?:Proxy|Local|KnownHosts)Command|PermitLocalCommand ; ssh runs a command
  ; ssh -o
make gmake ; : --eval ; make runs code from its arguments ; make --eval
expect tclsh ; : -c ; it types into programs ; expect -c
sqlite3 ; : ~\.(?:shell|system|load|import)\b ; sqlite runs a command ; sqlite3 .shell
gdb ; : ~-ex[=\s](?:shell|!|python|\x03?call) ; gdb runs a command ; gdb -ex
enable ; : -f ; it loads code into the shell ; enable -f
bind ; : -x ; it binds a key to a command
hash ; : -p ; it changes what a command name means ; hash -p
xdotool ydotool ; key, type ; it types into other windows ; xdotool
chattr ; : [+-]*i* ; it makes files immutable or undoes it ; chattr
ulimit ; : ~^-\w+\s+0$ ; it starves the shell ; ulimit

# Ways in and traces
nc ncat netcat ; : -e -c --exec --sh-exec ; it connects a program to the network ; nc -e
nc ncat netcat ; : -l ; it listens on the network ; nc -l
socat ; : ~(?i)\b(?:exec|system|shell)\s*: ; it connects a program to the network ; socat exec
ssh ; : -R ; it opens a way in from outside ; ssh -R
ngrok cloudflared localtunnel lt bore chisel frpc ; ; it opens a way in from outside
history ; : -c -d -w ; it wipes the shell history ; history -c
unset ; : HISTFILE HISTSIZE ; it turns the shell history off ; HISTFILE=
set ; : ~\+o\shistory ; it turns the shell history off ; HISTFILE=
journalctl ; : --vacuum* ; it deletes logs ; journalctl --vacuum
auditctl ; : -D -e ; it turns auditing off or clears logs
wevtutil Clear-EventLog ; ; it turns auditing off or clears logs
dmesg ; : -c -C --clear ; it clears the kernel log ; dmesg -C
""")
