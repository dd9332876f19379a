# Measurements, run by hand: busy, cpu_vs_torch, examples, experts_vs_torch, forecast, generate_vs_transformers,
# gpu_vs_torch, in_turns, layouts, loading_vs_transformers, memory_vs_torch, optimizers, parallel_vs_torch,
# qlora_vs_peft, saving, schedules, startup, strategies, tokenize_rate, tokenizers, versus.  `make check` builds gemm_rate, attention_rate,
# loader_rate, sampling_rate, schedule_waits and tokenizer_rate only.
if HAVE_CUDA
check_PROGRAMS += tests/bench/attention_rate tests/bench/attention_rate_emulated
tests_bench_attention_rate_SOURCES = tests/bench/attention_rate.c
tests_bench_attention_rate_LDADD = $(TRIREME_LIBS)
tests_bench_attention_rate_emulated_SOURCES = tests/bench/attention_rate.c
tests_bench_attention_rate_emulated_LDADD = $(EMULATED_LIBS)
endif
check_PROGRAMS += tests/bench/gemm_rate
tests_bench_gemm_rate_SOURCES = tests/bench/gemm_rate.c
tests_bench_gemm_rate_LDADD = $(TRIREME_LIBS)
check_PROGRAMS += tests/bench/schedule_waits
tests_bench_schedule_waits_SOURCES = tests/bench/schedule_waits.c tests/mpi/check.h $(rig)
tests_bench_schedule_waits_LDADD = $(TRIREME_LIBS)
check_PROGRAMS += tests/bench/sampling_rate tests/bench/tokenizer_rate
tests_bench_sampling_rate_SOURCES = tests/bench/sampling_rate.c
tests_bench_sampling_rate_LDADD = $(TRIREME_LIBS)
tests_bench_tokenizer_rate_SOURCES = tests/bench/tokenizer_rate.c
tests_bench_tokenizer_rate_LDADD = $(TRIREME_LIBS)
check_PROGRAMS += tests/bench/loader_rate
tests_bench_loader_rate_SOURCES = tests/bench/loader_rate.c
tests_bench_loader_rate_LDADD = $(TRIREME_LIBS)
EXTRA_DIST += tests/bench/loading_vs_transformers tests/bench/tokenizers tests/bench/tokenizer_rounds.py tests/bench/busy tests/bench/cpu_vs_torch tests/bench/examples tests/bench/experts_vs_torch tests/bench/torch_experts.py tests/bench/forecast tests/bench/in_turns tests/bench/layouts tests/bench/optimizers tests/bench/qlora_vs_peft tests/bench/torch_qlora.py tests/bench/schedules tests/bench/generate_vs_transformers tests/bench/torch_generate.py tests/bench/gpu_vs_torch tests/bench/kernel_table.py tests/bench/trace_lanes.py \
	tests/bench/memory_vs_torch tests/bench/peaks.py tests/bench/torch_gpu.py tests/bench/parallel_vs_torch tests/bench/rounds.py tests/bench/saving tests/bench/torch_gpt2.py tests/bench/torch_llama.py tests/bench/torch_memory.py tests/bench/torch_parallel.py \
	tests/bench/interval.awk tests/bench/startup tests/bench/mpi_start.c tests/bench/strategies \
	tests/bench/tokenize_rate tests/bench/versus
