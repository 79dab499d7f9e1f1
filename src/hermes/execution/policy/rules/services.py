"""Services, processes, containers, schedules and Hermes itself."""

from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.rules.shapes import Shape, Shapes

__all__ = ["check"]

_SHAPES = Shapes(
    "services",
    (
        Shape(
            "systemctl",
            r"(?:^|\s)(?:stop|restart|try-restart|reload-or-restart|disable|mask|kill|"
            r"enable|edit|link|revert|set-default|isolate|daemon-reexec|set-property|start|"
            r"reset-failed|unmask|import-environment|set-environment)\b",
            "it changes which services run",
        ),
        Shape(
            "service rc-service",
            r"\s(?:stop|restart|force-reload|start)\b",
            "it changes which services run",
            "service stop",
        ),
        Shape("initctl", r"^(?:stop|restart)\b", "it changes which services run"),
        Shape(
            "supervisorctl pm2 monit sv",
            r"(?:^|\s)(?:stop|restart|delete|kill|shutdown|down|remove)\b",
            "it stops services",
        ),
        Shape(
            "launchctl",
            r"^(?:unload|remove|bootout|stop|kill|disable|load|bootstrap|kickstart|submit|"
            r"setenv)\b",
            "it changes which services run",
        ),
        Shape("brew", r"^services\s+(?:stop|restart|kill)", "it stops services"),
        Shape(
            "kill",
            r"(?:^|\s)-(?:9|KILL|SIGKILL)\b|-s\s*(?:9|KILL|SIGKILL)\b|-n\s*9\b|"
            r"--signal[= ](?:9|KILL|SIGKILL)",
            "it kills without a chance to tidy up",
            "kill -9",
        ),
        Shape(
            "kill",
            r"(?:^|\s)(?:1|-[2-9]\d+|-\d{3,})$",
            "it signals the first process or a group",
            "kill group",
        ),
        Shape(
            "pkill killall",
            r"^(?!(?:-0|--help|-l|-L)\b)",
            "it signals every process of a name",
            "pkill",
        ),
        Shape("skill snice fuser", r"(?:^|\s)-\w*k|^-?(?:KILL|9)", "it kills processes"),
        Shape("taskkill taskkill.exe tskill Stop-Process", "", "it kills processes", "taskkill"),
        Shape(
            "docker podman nerdctl",
            r"^(?:-\S+\s+)*(?:container\s+|image\s+|volume\s+|network\s+|system\s+|"
            r"builder\s+|buildx\s+|stack\s+|service\s+|swarm\s+)?(?:stop|kill|rm|rmi|prune|"
            r"restart|pause|"
            r"leave|update)\b",
            "it stops or deletes containers, images or volumes",
        ),
        Shape(
            "docker podman nerdctl",
            r"(?:^|\s)compose\s(?:.*\s)?(?:down|rm|kill|stop|restart)\b",
            "it stops or deletes containers",
            "docker compose down",
        ),
        Shape(
            "docker-compose podman-compose",
            r"(?:^|\s)(?:down|rm|kill|stop|restart)\b",
            "it stops or deletes containers",
            "docker compose down",
        ),
        Shape(
            "docker podman nerdctl",
            r"^(?:container\s+)?(?:run|create)\s(?:.*\s)?(?:--privileged|--pid[= ]host|"
            r"--cap-add|--device|--userns[= ]host|--ipc[= ]host|--security-opt)",
            "the container could reach the host",
            "docker run --privileged",
        ),
        Shape(
            "docker podman nerdctl",
            r"(?:-v|--volume)[= ]?(?:/|/etc|/root|/home|/var/run/docker\.sock|"
            r"/usr|/boot|/var|/home/[^/:\s]+|/dev|/proc|/sys):",
            "the container gets the host's files",
            "docker run -v /",
        ),
        Shape(
            "docker podman nerdctl",
            r"--mount[= ]\S*(?:source|src)=(?:/|/etc|/root|/home|/usr|/var)(?:,|\s|$)",
            "the container gets the host's files",
            "docker run -v /",
        ),
        Shape(
            "docker podman", r"docker\.sock", "the container could control Docker", "docker.sock"
        ),
        Shape(
            "crontab",
            r"(?:^|\s)-[a-z]*r|^(?!-l\b|-u\s+\S+\s+-l\b)\S",
            "it changes the schedule",
            "crontab",
        ),
        Shape("at batch", r"^(?!-l\b|-c\b|-V\b)", "it schedules commands", "at"),
        Shape("atrm", "", "it changes the schedule", "atrm"),
        Shape("systemd-run", "", "it runs something outside of this session", "systemd-run"),
        Shape(
            "schtasks schtasks.exe",
            r"(?i)/(?:create|delete|change|run)",
            "it changes the schedule",
            "schtasks",
        ),
        Shape(
            "hermes",
            r"^(?:gateway\s+(?:run|start|stop|restart|uninstall|install|update)|"
            r"update|uninstall|reset|stop|"
            r"pairing\s+(?:approve|revoke|clear-pending)|hooks\s+(?:enable|disable)|"
            r"restart|config\s+(?:set|edit|unset)|auth|login|logout|setup|"
            r"approvals\s+(?!test|list)|profile\s+(?:delete|use)|agents?\s+(?:remove|delete)|"
            r"sessions\s+(?:delete|prune)|cron\s+(?:remove|delete|add|create)|"
            r"skills\s+(?:install|add)|"
            r"plugins\s+(?:install|add|enable)|backup\s+restore|migrate|secrets)\b|--yolo",
            "it stops, updates or reconfigures Hermes itself",
        ),
        Shape(
            "virsh VBoxManage",
            r"(?:destroy|undefine|shutdown|controlvm|unregistervm)",
            "it stops or deletes machines",
        ),
        Shape(
            "xe lxc incus multipass",
            r"(?:^|\s)(?:delete|stop|vm-shutdown|purge)\b",
            "it stops or deletes machines",
        ),
        Shape("loginctl", r"terminate|kill", "it ends sessions"),
        Shape("tmux", r"^kill-server", "it ends every terminal session", "tmux kill-server"),
    ),
)


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield dangers of stopping and scheduling things."""
    yield from _SHAPES.check(call)
