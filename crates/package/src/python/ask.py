# Run by `python -I -c`: prints the interpreter's real path and the folders that it needs elsewhere.
import json, os, site, sys, sysconfig

paths = sysconfig.get_paths()
libraries = [sysconfig.get_config_var("LIBDIR")] if sysconfig.get_config_var("Py_ENABLE_SHARED") else []
print(json.dumps({
    "executable": getattr(sys, "_base_executable", None) or sys.executable,
    "implementation": sys.implementation.name,
    "version": list(sys.version_info[:3]),
    "tag": sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag,
    "platform": sysconfig.get_platform(),
    "prefixes": [sys.base_prefix, sys.base_exec_prefix],
    "stdlib": sorted({paths["stdlib"], paths["platstdlib"]}),
    "libraries": libraries,
    "modules": sorted(sys.stdlib_module_names) if hasattr(sys, "stdlib_module_names") else [],
    "sites": site.getsitepackages([sys.base_prefix, sys.base_exec_prefix]),
    "home": os.path.expanduser("~"),
}))
