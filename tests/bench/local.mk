# Measurements, run by hand: cpu_vs_torch, gpu_vs_torch, memory_vs_torch, startup, strategies.
# `make check` builds gemm_rate only.
check_PROGRAMS += tests/bench/gemm_rate
tests_bench_gemm_rate_SOURCES = tests/bench/gemm_rate.c
tests_bench_gemm_rate_LDADD = $(TRIREME_LIBS)
EXTRA_DIST += tests/bench/cpu_vs_torch tests/bench/gpu_vs_torch tests/bench/kernel_table.py \
	tests/bench/memory_vs_torch tests/bench/peaks.py tests/bench/torch_gpu.py \
	tests/bench/torch_llama.py tests/bench/torch_memory.py \
	tests/bench/startup tests/bench/mpi_start.c tests/bench/strategies tests/bench/versus
