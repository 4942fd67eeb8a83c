"""A disk that is soon full: a file system of a few megabytes in memory, mounted in a mount
namespace of its own, so that it goes with the programme that runs there."""

import shutil
import subprocess

TOOLS = ("mount", "sh", "unshare")


def words(folder, size):
    """Returns the words that start a programme which finds such a disk at `folder`."""
    return ["unshare", "--mount", "--map-root-user", "sh", "-c",
            f'mount -t tmpfs -o size={size} none "$0" && exec "$@"', str(folder)]


def can_be_made():
    """Returns whether this process may make mount namespaces."""
    if not all(shutil.which(tool) for tool in TOOLS):
        return False
    try:
        subprocess.run([*words("/mnt", "1m"), "true"], check=True, capture_output=True, timeout=20)
        return True
    except (OSError, subprocess.SubprocessError):
        return False
