# version_at_least VERSION OLDEST: compares numbers between dots.
version_at_least() {
  [[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]
}

# installed_version PACKAGE: without what a build adds behind a plus sign; empty if it is not installed.
installed_version() {
  local version
  version="$("$INSTALL_DIR/venv/bin/python" -c \
    'import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))' "$1" 2>/dev/null)" || true
  printf '%s' "${version%%+*}"
}

# install PACKAGE VERSION URL [NAME=VALUE...]: from the tag of the version; the variables are for its build.
install() {
  local package="$1" version="$2" url="$3" folder="$INSTALL_DIR/$1" tag
  shift 3
  if [[ "$(installed_version "$package")" == "$version" ]]; then
    say "$package $version is installed already"
    return
  fi
  if [[ -e "$folder" ]]; then
    tag="$(git -C "$folder" describe --tags --exact-match 2>/dev/null)" || tag="no tag"
    if [[ "$tag" != "v$version" ]]; then
      fail "$folder is at $tag, not at v$version; move it away"
    fi
    if [[ -n "$(git -C "$folder" status --porcelain --untracked-files=no)" ]]; then
      fail "files in $folder were changed; move it away"
    fi
  else
    say "fetching $package at v$version"
    rm -rf -- "$folder.new"
    git clone --depth 1 --branch "v$version" --recurse-submodules --shallow-submodules "$url" "$folder.new"
    mv -- "$folder.new" "$folder"
  fi
  say "building $package $version"
  env "$@" "$INSTALL_DIR/venv/bin/python" -m pip install --editable "$folder"
  if [[ "$(installed_version "$package")" != "$version" ]]; then
    fail "$package says it is version $(installed_version "$package"), not $version"
  fi
}

# add REQUIREMENT: a package of the index; nothing changes where it is there.
add() {
  say "installing $1"
  "$INSTALL_DIR/venv/bin/python" -m pip install "$1"
}

# take_away PACKAGE: what a build pulled in and the chip cannot use.
take_away() {
  say "removing $1"
  "$INSTALL_DIR/venv/bin/python" -m pip uninstall --yes "$1"
}

if [[ "$INSTALL_DIR" != /* ]]; then
  fail "INSTALL_DIR is the relative path $INSTALL_DIR; write it from / on in $DEPLOYMENT_DIR/env.sh"
fi
for program in git python3; do
  if ! command -v "$program" >/dev/null 2>&1; then
    fail "$program is not installed on this machine"
  fi
done
python_version="$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
if ! version_at_least "$python_version" "$oldest_python" || version_at_least "$python_version" "$too_new_python"; then
  fail "python3 is $python_version; this release needs $oldest_python or newer, and older than $too_new_python"
fi
mkdir -p -- "$INSTALL_DIR"
if [[ ! -x "$INSTALL_DIR/venv/bin/python" ]]; then
  python3 -m venv "$INSTALL_DIR/venv"
fi
