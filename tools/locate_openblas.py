"""Print the folder of the library scipy_openblas, from the wheel scipy-openblas32."""

import sys

try:
    import scipy_openblas32
except ImportError:
    sys.exit("scipy-openblas32 is not installed in the build environment")
print(scipy_openblas32.get_lib_dir())
