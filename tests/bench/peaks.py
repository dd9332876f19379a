"""peaks.py - the most memory that the ranks of a job held, as the kernel counts it.

Runs a command under mpirun and reads /proc of every rank while it lives:
  resident   VmHWM, the kernel's own high-water mark of all resident pages: nothing is missed
  pss        pages shared with other processes counted in part (libraries, shared memory), the
             highest of the samples
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


def sample(process, exact):
    status = fields(process / "status")
    now = {"resident": status["VmHWM"], "private": status["RssAnon"] + status["RssShmem"]}
    if exact:
        now["pss"] = fields(process / "smaps_rollup")["Pss"]
    return now


def watch(job, ranks, exact, every):
    """Highest samples by rank, until the job ends."""
    peaks, found, turn = {}, {}, 0
    while job.poll() is None:
        try:
            if len(found) < ranks:
                found = find_ranks(job.pid)
        except OSError:
            pass
        for rank, process in found.items():
            try:
                due = turn % PSS_TURNS == 0 or rank not in peaks
                now = sample(process, exact and due)
            except (OSError, KeyError):
                continue  # it has just ended
            most = peaks.setdefault(rank, {})
            for kind, value in now.items():
                most[kind] = max(most.get(kind, 0), value)
        turn += 1
        time.sleep(every)
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
