EXTRA_DIST += tests/slurm/cluster.sh tests/slurm/run.sh tests/slurm/hello.c tests/slurm/late_start.c \
	tests/slurm/slow_messages.c
