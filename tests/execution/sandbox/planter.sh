# Run inside of a sandbox by test_sandbox_project.py: hides what the host would run later.
set -e
mkdir sub1 sub2 sub3 sub4 sub5 sub6 sub7 sub8 sub9 sub1/r many target node_modules
echo evil > sub1/rc
ln -s rc sub1/.envrc
ln -s r sub1/.vscode
evil() {
    printf '[core]\n\tfsmonitor = ./evil\n' >> "$1"
}
git init -q node_modules/g
evil node_modules/g/.git/config
ln -s ../node_modules/g/.git sub2/.git
mkdir -p target/.git/modules node_modules/deep/1/2/3/4/.git/modules
cp -r node_modules/g/.git target/.git/modules/g
cp -r node_modules/g/.git node_modules/deep/1/2/3/4/.git/modules/g
echo 'gitdir: ../target/.git/modules/g' > sub3/.git
echo 'gitdir: ../node_modules/deep/1/2/3/4/.git/modules/g' > sub4/.git
# Through a link, inside of the objects of a repository, far away, and through a second line.
ln -s node_modules/deep/1/2/3/4 short
echo 'gitdir: ../short/.git/modules/g' > sub5/.git
mkdir -p .git/modules/x/objects
cp -r node_modules/g/.git .git/modules/x/objects/g
echo 'gitdir: ../.git/modules/x/objects/g' > sub6/.git
echo 'gitdir: /tmp/x/.git/modules/g' > sub7/.git
printf 'gitdir: ../.git/modules/a\ngitdir: ../.git/modules/b\n' > sub8/.git
git init -q venv
evil venv/.git/config
git init -q target/a/b
mkdir -p target/a/b/.git/hooks
echo evil > target/a/b/.git/hooks/pre-commit
python3 - <<'END'
for number in range(6000):
    open(f"many/{number}", "w").close()
END
mkdir many/.vscode
touch many/.envrc sub9/.gdbinit .Rprofile
mkdir -p .git/modules/a/b/c/d/e/f
evil .git/modules/a/b/c/d/e/f/config
echo planted
