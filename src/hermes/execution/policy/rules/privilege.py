"""More rights: other users, accounts, the firewall and the kernel."""

from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.rules.shapes import Shape, Shapes

__all__ = ["check"]

_SHAPES = Shapes(
    "privilege",
    (
        Shape(
            "sudo doas pkexec su runuser gosu su-exec sudoedit run0 machinectl dzdo pfexec",
            r"^(?!(?:-V|--version|--help)$)",
            "it runs with another user's rights",
        ),
        Shape("runas", "", "it runs with another user's rights", "runas"),
        Shape(
            "useradd adduser userdel deluser usermod groupadd groupdel groupmod gpasswd chpasswd "
            "newusers vipw visudo chsh chfn dscl pw passwd htpasswd",
            r"^(?!-S\b|--status\b|--help\b)",
            "it changes accounts",
        ),
        Shape("net net.exe", r"(?i)^(?:user|localgroup)\s.*/(?:add|delete)", "it changes accounts"),
        Shape(
            "iptables ip6tables",
            r"^(?!(?:-\w+\s+\w+\s+)?(?:-n?v?n?L|-S|--list)\b)\S",
            "it changes the firewall",
        ),
        Shape("nft", r"^(?!list\b)\S", "it changes the firewall", "nft"),
        Shape("ufw", r"^(?!status\b|version\b|app\b)\S", "it changes the firewall", "ufw"),
        Shape(
            "firewall-cmd",
            r"--(?:add|remove|set|reload|permanent|panic|complete)",
            "it changes the firewall",
            "firewall-cmd",
        ),
        Shape("pfctl", r"-[a-zA-Z]*[dFf]", "it changes the firewall", "pfctl"),
        Shape("iptables-restore ip6tables-restore", "", "it changes the firewall", "iptables"),
        Shape(
            "ip",
            r"(?:^|\s)(?:route|rule|addr|address|link|neigh|netns|tunnel)\s+"
            r"(?:add|del|delete|change|replace|flush|set|append)\b",
            "it changes the network",
            "ip",
        ),
        Shape(
            "route", r"(?:^|\s)(?:add|del|delete|flush|change)\b", "it changes the network", "route"
        ),
        Shape(
            "ifconfig", r"\s(?:down|up|\d+\.\d+|delete|ether)", "it changes the network", "ifconfig"
        ),
        Shape(
            "nmcli",
            r"(?:^|\s)(?:add|delete|modify|down|off|up|edit)\b",
            "it changes the network",
            "nmcli",
        ),
        Shape(
            "resolvectl hostnamectl timedatectl localectl scutil networksetup",
            r"(?:^|\s)-*set\S*|dns\s+\S+\s+\S",
            "it changes system settings",
        ),
        Shape("modprobe", r"^(?!--show|-c\b|-n\b)", "it changes the kernel", "modprobe"),
        Shape("insmod rmmod kmod depmod kexec", r"^(?!list\b)", "it changes the kernel"),
        Shape(
            "sysctl",
            r"(?:^|\s)(?:-w|--write|-p|--system|\S+=)",
            "it changes the kernel",
            "sysctl -w",
        ),
        Shape(
            "setenforce apparmor_parser aa-disable aa-complain aa-teardown semanage setsebool",
            "",
            "it weakens access control",
        ),
        Shape(
            "csrutil spctl",
            r"disable|--master-disable|--global-disable",
            "it weakens access control",
        ),
        Shape(
            "mount umount losetup swapoff swapon cryptsetup", r"\S", "it changes what is mounted"
        ),
        Shape("chroot unshare nsenter bwrap", r"\S", "it changes the view of the system"),
        Shape(
            "strace gdb ltrace", r"(?:^|\s)(?:-p|--pid|--attach)", "it looks into another process"
        ),
        Shape("reg reg.exe", r"(?i)^(?:add|delete|import)\b", "it changes the registry", "reg"),
        Shape(
            "bcdedit vssadmin diskpart",
            r"(?i)\S|^$",
            "it changes how the system starts or is kept",
        ),
        Shape(
            "update-alternatives ldconfig update-grub grub-install efibootmgr dpkg-reconfigure "
            "dpkg-divert update-rc.d chkconfig",
            r"^(?!--(?:list|query|display|get-selections)|-p\b)",
            "it changes the system",
        ),
        Shape("security", r"(?:find|dump|delete|unlock|export|add)-", "it uses the keychain"),
        Shape(
            "gpg gpg2",
            r"--(?:export-secret|delete-secret|delete-key|delete-keys)",
            "it exports or deletes keys",
        ),
        Shape("ssh-keygen", r"(?:^|\s)-[a-zA-Z]*R", "it removes known hosts", "ssh-keygen -R"),
        Shape("ssh-copy-id", "", "it gives a key access", "ssh-copy-id"),
        Shape("xhost", r"\+", "it opens the display to everybody", "xhost +"),
    ),
)


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield dangers of having or giving more rights."""
    for danger in _SHAPES.check(call):
        yield Danger(danger.family, danger.reason, danger.pattern.split()[0])
