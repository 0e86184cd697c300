# Installs what onw needs on Debian 12 and Ubuntu 22.04 or later. Sourced by start.sh and test.sh; needs bash.
#
#   install_missing build|test     prints what is missing and installs it: as root at once, else with sudo after asking,
#                                  or, without a terminal, prints the command and fails
#   choose_compiler                sets CC and CXX to the best compiler that is installed
setup_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

say() { printf '%s\n' "$*" >&2; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# version_at_least HAVE WANT
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# The installed version of a package without epoch, or nothing.
installed_version() {
  dpkg-query -W -f='${db:Status-Abbrev} ${Version}\n' "$1" 2>/dev/null | awk '$1 == "ii" { sub(/^[0-9]+:/, "", $2); print $2; exit }'
}

# The version that the archive offers, without epoch, or nothing.
candidate_version() {
  apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)" { sub(/^[0-9]+:/, "", $2); print $2 }'
}

# The version that a command prints of itself.
command_version() { "$1" --version 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1; }

has_command() { command -v "$1" >/dev/null 2>&1; }

# Packages of the table that are missing or too old: for purpose "build" those rows, for "test" all rows.
missing_packages() {
  local names minimum command purpose why name found
  while IFS=$'\t' read -r names minimum command purpose why; do
    case $names in '' | '#'*) continue ;; esac
    [ "$1" = test ] || [ "$purpose" = build ] || continue
    found=
    if [ "$command" != - ] && has_command "$command" && version_at_least "$(command_version "$command")" "$minimum"; then
      continue
    fi
    for name in ${names//|/ }; do
      if version_at_least "$(installed_version "$name")" "$minimum"; then found=yes; fi
    done
    [ -z "$found" ] || continue
    for name in ${names//|/ }; do  # the first alternative that the archive has, else the first
      if [ -n "$(candidate_version "$name")" ]; then found=$name; break; fi
    done
    printf '%s\n' "${found:-${names%%|*}}"
  done <"$setup_dir/packages.tsv"
}

# Sets CC and CXX: clang 19 (or newer), else the newest clang from 14 on, else g++ from 11 on. Fails where there is none.
choose_compiler() {
  local version
  for version in 19 20 21 22 18 17 16 15 14; do
    if has_command "clang++-$version"; then
      CC=clang-$version CXX=clang++-$version
      return
    fi
  done
  if has_command g++ && version_at_least "$(g++ -dumpversion)" 11; then
    CC=gcc CXX=g++
    say "warning: building with g++, whose wide kernels run at about half the speed of clang's. Install clang-19."
    return
  fi
  return 1
}

# The compiler's packages that are missing, for purpose build or test.
missing_compiler() {
  local version tools="clang lld"
  for version in 19 18 17 16 15 14; do
    if has_command "clang++-$version" || [ -n "$(candidate_version "clang-$version")" ]; then break; fi
    [ "$version" != 14 ] || version=
  done
  if [ -z "$version" ]; then
    (has_command g++ && version_at_least "$(g++ -dumpversion)" 11) || printf 'g++\n'
    return
  fi
  has_command "clang++-$version" || printf 'clang-%s\n' "$version"
  has_command "ld.lld-$version" || has_command ld.lld || printf 'lld-%s\n' "$version"
  [ "$1" = test ] || return 0
  # The runtimes of the sanitisers, of the fuzzer and the formatter, where the archive has them as packages.
  for tools in libclang-rt-$version-dev clang-format-$version; do
    [ -n "$(installed_version "$tools")" ] || [ -z "$(candidate_version "$tools")" ] || printf '%s\n' "$tools"
  done
}

rust_minimum=1.87

# cargo-web where it would help; else says what to type and fails.
missing_cargo() {
  if has_command cargo && version_at_least "$(command_version cargo)" $rust_minimum; then return 0; fi
  if has_command rustup; then
    fail "cargo is older than $rust_minimum or has no default toolchain. Type: rustup update stable && rustup default stable"
  fi
  if has_command cargo; then
    fail "cargo $(command_version cargo) is older than $rust_minimum. Remove it and run this again, or install Rust with rustup (apt-get install rustup; rustup default stable)."
  fi
  if version_at_least "$(candidate_version cargo-web)" $rust_minimum; then
    printf 'cargo-web\n'
  elif version_at_least "$(candidate_version cargo)" $rust_minimum; then
    printf 'cargo\n'
  elif [ -n "$(candidate_version rustup)" ]; then
    fail "Rust from $rust_minimum on is needed. Type: sudo apt-get install rustup && rustup default stable"
  else
    fail "Rust from $rust_minimum on is needed, and the archive has none: install it with rustup as the Rust project describes, then run this again."
  fi
}

# Everything that is missing, one package a line.
missing() {
  missing_packages "$1"
  missing_compiler "$1"
}

system_is_known() {
  [ -r /etc/os-release ] || return 1
  (
    . /etc/os-release
    case $ID in
      debian) version_at_least "${VERSION_ID:-99}" 12 ;;
      ubuntu) version_at_least "${VERSION_ID:-0}" 22.04 ;;
      *) exit 1 ;;
    esac
  )
}

install_missing() {
  local purpose=$1 packages cargo as_root= simulated
  if ! system_is_known || ! has_command apt-get; then
    say "This is neither Debian 12 nor Ubuntu 22.04 or newer: nothing is installed. What onw needs stands in tools/setup/packages.tsv,"
    say "with clang 14 or newer (or g++ 11) and cargo $rust_minimum or newer."
    return 0
  fi
  packages=$(missing "$purpose")
  cargo=needed
  if has_command cargo && version_at_least "$(command_version cargo)" $rust_minimum; then cargo=; fi
  [ -n "$packages$cargo" ] || return 0

  say "Missing: $(echo $packages ${cargo:+cargo})"
  if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    if ! has_command sudo || ! { [ -t 0 ] && [ -t 2 ]; }; then
      [ -z "$cargo" ] || packages="$packages $(missing_cargo)" || exit 1
      say "Nobody can be asked here. Type, then run this again:"
      say "  sudo apt-get update && sudo apt-get install --no-install-recommends $(echo $packages)"
      exit 1
    fi
    read -r -p "Install them with sudo apt-get? [Y/n] " answer
    case $answer in '' | [yYjJ]*) ;; *) fail "nothing was installed" ;; esac
  fi
  $as_root apt-get -q update >&2 || fail "apt-get update failed: see above"
  packages=$(missing "$purpose")  # now that the archive's list is fresh
  if [ -n "$cargo" ]; then
    cargo=$(missing_cargo) || exit 1
    packages="$packages $cargo"
  fi
  packages=$(echo $packages)
  [ -n "$packages" ] || return 0
  simulated=$(LC_ALL=C apt-get -s install --no-install-recommends $packages 2>&1) ||
    { say "$simulated"; fail "apt-get cannot install: $packages"; }
  if printf '%s\n' "$simulated" | grep -q '^Remv '; then
    printf '%s\n' "$simulated" | grep '^Remv ' >&2
    fail "apt-get would remove the packages above. Nothing was changed. To see all: apt-get -s install --no-install-recommends $packages"
  fi
  say "Installing: $packages"
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends $packages >&2 ||
    fail "apt-get install failed: see above"
}
