# Documents are installed in a folder doc, where README.md links to.  The section on keys is printed by a small program
# from the table that parses them.  It runs while trireme is built: CC_FOR_BUILD compiles it, and it needs no library.
man_MANS = doc/trireme.1 doc/trireme-config.5
dist_doc_DATA = README.md LICENSE NEWS
docpagesdir = $(docdir)/doc
dist_docpages_DATA = doc/architecture.md doc/development.md doc/experiments.md doc/forecasts.md doc/jobs.md doc/metrics.md \
	doc/models.md doc/numerics.md doc/performance.md doc/planning.md doc/runs.md doc/step.md doc/token-files.md doc/tokenizers.md
EXTRA_DIST += doc/metrics.awk doc/trireme.1.in doc/trireme-config.5.in doc/keys.c
CLEANFILES += $(man_MANS) doc/keys
keys_sources = $(addprefix $(srcdir)/,doc/keys.c src/base/error.c src/base/text.c) $(addprefix $(srcdir)/src/config/, \
	foreign.c key.c nearest.c presets.c schema.c schema_model.c schema_parallel.c schema_run.c schema_train.c show.c)
doc/keys: $(keys_sources) $(addprefix $(srcdir)/src/config/,config.h schema.h schema_rows.h)
	$(AM_V_GEN)$(MKDIR_P) doc && $(CC_FOR_BUILD) -std=gnu11 $(AM_CPPFLAGS) -o $@ $(keys_sources)
doc/trireme-config.5: doc/trireme-config.5.in doc/keys
	$(AM_V_GEN)doc/keys >$@.keys && $(SED) -e 's|@VERSION[@]|$(PACKAGE_VERSION)|' \
	  -e '/^@KEYS[@]$$/{r $@.keys' -e 'd;}' $(srcdir)/doc/trireme-config.5.in >$@.new && rm $@.keys && mv $@.new $@
doc/trireme.1: doc/metrics.awk doc/metrics.md doc/trireme.1.in
	$(AM_V_GEN)$(MKDIR_P) doc && cd $(srcdir) && $(AWK) -f doc/metrics.awk doc/metrics.md doc/trireme.1.in | \
	  $(SED) 's|@VERSION[@]|$(PACKAGE_VERSION)|' >'$(abs_builddir)/$@.new' && mv '$(abs_builddir)/$@.new' '$(abs_builddir)/$@'
