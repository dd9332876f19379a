"""peaks.py - the most memory that the ranks of a job held, as the kernel counts it.

Runs a command under mpirun and reads /proc of every rank while it lives:
  resident   VmHWM, the kernel's own high-water mark of all resident pages: nothing is missed, and
             what a rank reads of another one's memory counts for both
  pss        pages shared with other processes counted in part (libraries, memory that ranks read
             of one another), of all ranks at one time by their number, the highest of the samples
  private    RssAnon + RssShmem, no file's pages, the highest of the samples
Reading pss holds up the process; exact=False leaves it out.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

KINDS = ("resident", "pss", "private")
PSS_TURNS = 8  # pss is slow to read: once in so many samples
RANK = b"OMPI_COMM_WORLD_RANK="


def fields(path):
    """Name and bytes of the lines `Name: number kB`."""
    out = {}
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":
            out[name] = int(words[0]) * 1024
    return out


def find_ranks(parent):
    """Processes that mpirun started, by rank."""
    ranks = {}
    for pid in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        process = pathlib.Path("/proc", pid)
        for setting in (process / "environ").read_bytes().split(b"\0"):
            if setting.startswith(RANK):
                ranks[int(setting[len(RANK):])] = process
    return ranks


def sample(process):
    status = fields(process / "status")
    return {"resident": status["VmHWM"], "private": status["RssAnon"] + status["RssShmem"]}


def share(found):
    """Bytes of pss by the number of ranks; 0 when one of them has just ended."""
    try:
        return sum(fields(p / "smaps_rollup")["Pss"] for p in found.values()) // len(found)
    except (OSError, KeyError):
        return 0


def watch(job, ranks, exact, every):
    """Highest samples by rank, until the job ends."""
    peaks, found, turn, most_share = {}, {}, 0, 0
    while job.poll() is None:
        try:
            if len(found) < ranks:
                found = find_ranks(job.pid)
        except OSError:
            pass
        for rank, process in found.items():
            try:
                now = sample(process)
            except (OSError, KeyError):
                continue  # it has just ended
            most = peaks.setdefault(rank, {})
            for kind, value in now.items():
                most[kind] = max(most.get(kind, 0), value)
        if exact and turn % PSS_TURNS == 0 and len(found) == ranks:
            most_share = max(most_share, share(found))
        turn += 1
        time.sleep(every)
    for most in peaks.values():
        if exact:
            most["pss"] = most_share
    return peaks


def run(command, ranks, exact=True, every=0.025, env=None):
    """What the job printed, and the peaks of each of its ranks."""
    command = [str(c) for c in ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks,
                                *command]]
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           **(env or {})}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        job = subprocess.Popen(command, stdout=out, stderr=err, env=env)
        peaks = watch(job, ranks, exact, every)
        out.seek(0), err.seek(0)
        if job.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{err.read()[-2000:]}")
        if len(peaks) != ranks:
            sys.exit(f"{' '.join(command)}: {len(peaks)} of {ranks} ranks were seen")
        return out.read(), [peaks[rank] for rank in sorted(peaks)]
