EXTRA_DIST += jobs/packages.sh
