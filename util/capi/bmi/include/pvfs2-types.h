/* What programs of BMI want of PVFS's types. */
#ifndef SELVEDGE_PVFS2_TYPES_H
#define SELVEDGE_PVFS2_TYPES_H

#include "bmi-types.h"

#endif
