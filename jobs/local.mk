# Batch scripts and their configs are installed beside each other, to be copied or used as they are.
jobsdir = $(pkgdatadir)/jobs
dist_jobs_SCRIPTS = jobs/llama8b_fsdp.sh
dist_jobs_DATA = jobs/llama8b_fsdp.yaml
dist_jobs_SCRIPTS += jobs/llama8b_hybrid.sh
dist_jobs_DATA += jobs/llama8b_hybrid.yaml
EXTRA_DIST += jobs/packages.sh jobs/quickstart.sh
