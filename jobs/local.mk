# Batch scripts and their configs are installed beside each other, to be copied or used as they are.
jobsdir = $(pkgdatadir)/jobs
jobs = jobs/gpt2xl_zero3_offload jobs/llama70b_3d jobs/llama70b_lora jobs/llama70b_qlora \
	jobs/llama8b_1gpu jobs/llama8b_2gpu_offload jobs/llama8b_fsdp jobs/llama8b_hybrid jobs/qwen3_30b_a3b
dist_jobs_SCRIPTS = $(jobs:=.sh)
dist_jobs_DATA = $(jobs:=.yaml)
EXTRA_DIST += jobs/packages.sh jobs/quickstart.sh
