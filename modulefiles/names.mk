# The modules that trireme's module needs: configure --with-module-deps="openmpi/4.1 cuda/13".
module_version = $(VERSION)$(module_suffix)
quote = "
lua_deps = $(subst $(quote) $(quote),$(quote)$(comma) $(quote),$(patsubst %,"%",$(module_deps)))
comma = ,
