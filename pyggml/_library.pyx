# cython: language_level=3, freethreading_compatible=False
"""The ggml library that is loaded: its version, what it was compiled for, what it finds."""

from libc.stddef cimport size_t

from pyggml cimport _ggml

cdef extern from *:
    """
    #ifndef PYGGML_GGML_VERSION
    #define PYGGML_GGML_VERSION "unknown"
    #endif
    #include <ggml-cpu.h>
    #if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
    #include <cpuid.h>
    static int pyggml_has_f16c(void) {
        unsigned a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29));
    }
    /* The i-th instruction set that ggml was compiled for and that this CPU lacks, "" if it is not
     * lacking, NULL at the end. ggml's functions return constants: none of its code that needs
     * such instructions has run, nor may it before this was asked. */
    static const char * pyggml_missing(int i) {
        __builtin_cpu_init();
        switch (i) {
        #define PYGGML_SET(number, name, wanted, found)                                          \
            case number: return (wanted) && !(found) ? name : ""
        PYGGML_SET(0, "SSE3", ggml_cpu_has_sse3(), __builtin_cpu_supports("sse3"));
        PYGGML_SET(1, "SSSE3", ggml_cpu_has_ssse3(), __builtin_cpu_supports("ssse3"));
        PYGGML_SET(2, "AVX", ggml_cpu_has_avx(), __builtin_cpu_supports("avx"));
        PYGGML_SET(3, "F16C", ggml_cpu_has_f16c(), pyggml_has_f16c());
        PYGGML_SET(4, "FMA", ggml_cpu_has_fma(), __builtin_cpu_supports("fma"));
        PYGGML_SET(5, "BMI2", ggml_cpu_has_bmi2(), __builtin_cpu_supports("bmi2"));
        PYGGML_SET(6, "AVX2", ggml_cpu_has_avx2(), __builtin_cpu_supports("avx2"));
        PYGGML_SET(7, "AVX512", ggml_cpu_has_avx512(), __builtin_cpu_supports("avx512f"));
        #undef PYGGML_SET
        default: return NULL;
        }
    }
    #else
    static const char * pyggml_missing(int i) { (void) i; return NULL; }
    #endif
    """
    const char * PYGGML_GGML_VERSION
    const char * pyggml_missing(int i)


def ggml_version():
    """Return the version of the ggml library that is loaded, as ``"0.20.2"``."""
    return (<bytes>_ggml.ggml_version()).decode()


def ggml_version_compiled():
    """Return the version of ggml that this extension was compiled against."""
    return (<bytes>PYGGML_GGML_VERSION).decode()


def check_ggml_version(found=None, compiled=None):
    """Raise ImportError unless the two versions share their minor version.

    Parameters
    ----------
    found, compiled : str, optional
        Versions to compare; by default the loaded and the compiled one.

    Raises
    ------
    ImportError
        ggml promises no binary compatibility between minor versions.
    """
    found = ggml_version() if found is None else found
    compiled = ggml_version_compiled() if compiled is None else compiled
    if found.split(".")[:2] != compiled.split(".")[:2]:
        minor = ".".join(compiled.split(".")[:2])
        raise ImportError(
            f"pyggml was compiled against ggml {compiled} but found ggml {found}, which may "
            f"differ in its binary interface; install 'libggml-python=={minor}.*' or build "
            f"pyggml anew against ggml {found}")


def cpu_features():
    """Return the instruction sets that ggml's CPU code was compiled for.

    Returns
    -------
    dict of str to str
        Names as ggml gives them, for example ``{"AVX2": "1"}``.
    """
    cdef size_t i
    cdef _ggml.ggml_backend_reg_t reg
    cdef _ggml.ggml_backend_get_features_t get_features
    cdef _ggml.ggml_backend_feature * feature
    result = {}
    for i in range(_ggml.ggml_backend_dev_count()):
        device = _ggml.ggml_backend_dev_get(i)
        if (<bytes>_ggml.ggml_backend_dev_name(device)) != b"CPU":
            continue
        reg = _ggml.ggml_backend_dev_backend_reg(device)
        get_features = <_ggml.ggml_backend_get_features_t>_ggml.ggml_backend_reg_get_proc_address(
            reg, b"ggml_backend_get_features")
        if get_features is NULL:
            continue
        feature = get_features(reg)
        while feature is not NULL and feature.name is not NULL:
            result[(<bytes>feature.name).decode()] = (<bytes>feature.value).decode()
            feature += 1
    return result


def check_cpu():
    """Raise ImportError where ggml was compiled for instructions that this CPU lacks."""
    cdef int i = 0
    missing = []
    while pyggml_missing(i) is not NULL:
        name = (<bytes>pyggml_missing(i)).decode()
        if name:
            missing.append(name)
        i += 1
    if missing:
        raise ImportError(
            f"the ggml library found was compiled for {', '.join(missing)}, which this CPU lacks; "
            "build pyggml with -Dggml=subproject or -Dggml=system on this machine")


def devices():
    """List the compute devices that ggml sees.

    Returns
    -------
    list of dict
        ``name``, ``description``, and the ``memory_free`` and ``memory_total`` in bytes.
    """
    cdef size_t i, unused, total
    result = []
    for i in range(_ggml.ggml_backend_dev_count()):
        device = _ggml.ggml_backend_dev_get(i)
        _ggml.ggml_backend_dev_memory(device, &unused, &total)
        result.append({
            "name": (<bytes>_ggml.ggml_backend_dev_name(device)).decode(),
            "description": (<bytes>_ggml.ggml_backend_dev_description(device)).decode(),
            "memory_free": unused,
            "memory_total": total,
        })
    return result
