# Batch scripts and their configs are installed beside each other, to be copied or used as they are.
jobsdir = $(pkgdatadir)/jobs
dist_jobs_SCRIPTS = jobs/gpt2xl_zero3_offload.sh jobs/llama8b_fsdp.sh
dist_jobs_DATA = jobs/gpt2xl_zero3_offload.yaml jobs/llama8b_fsdp.yaml
EXTRA_DIST += jobs/packages.sh jobs/quickstart.sh
