# The files are written by make install, so that they name the directories of that very install.
EXTRA_DIST += modulefiles/trireme.lua.in modulefiles/trireme.tcl.in modulefiles/trireme.pc.in
include $(top_srcdir)/modulefiles/names.mk
placed = $(SED) -e 's|@VERSION[@]|$(PACKAGE_VERSION)|g' -e 's|@prefix[@]|$(prefix)|g' \
	-e 's|@exec_prefix[@]|$(exec_prefix)|g' -e 's|@bindir[@]|$(bindir)|g' \
	-e 's|@libdir[@]|$(libdir)|g' -e 's|@includedir[@]|$(includedir)|g' \
	-e 's|@mandir[@]|$(mandir)|g' -e 's|@jobsdir[@]|$(jobsdir)|g' \
	-e 's|@pkgconfigdir[@]|$(pkgconfigdir)|g' -e 's|@SUFFIX[@]|$(module_suffix)|g' \
	$(if $(module_deps),,-e '/@[A-Z]*_DEPS[@]/d') \
	-e 's|@LUA_DEPS[@]|$(lua_deps)|' -e 's|@TCL_DEPS[@]|$(module_deps)|' \
	-e 's|@libs[@]|$(OPENMP_CFLAGS) -pthread $(filter-out libtrireme.a,$(TRIREME_LIBS))|g'
install-modulefiles:
	umask 022 && $(MKDIR_P) '$(DESTDIR)$(moduledir)/trireme' '$(DESTDIR)$(pkgconfigdir)'
	umask 022 && $(placed) $(srcdir)/modulefiles/trireme.lua.in >'$(DESTDIR)$(moduledir)/trireme/$(module_version).lua'
	umask 022 && $(placed) $(srcdir)/modulefiles/trireme.tcl.in >'$(DESTDIR)$(moduledir)/trireme/$(module_version)'
	umask 022 && $(placed) $(srcdir)/modulefiles/trireme.pc.in >'$(DESTDIR)$(pkgconfigdir)/trireme.pc'
uninstall-modulefiles:
	rm -f '$(DESTDIR)$(moduledir)/trireme/$(module_version).lua' \
	  '$(DESTDIR)$(moduledir)/trireme/$(module_version)' '$(DESTDIR)$(pkgconfigdir)/trireme.pc'
