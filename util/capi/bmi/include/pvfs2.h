/* What programs of BMI want of PVFS. */
#ifndef SELVEDGE_PVFS2_H
#define SELVEDGE_PVFS2_H

#include "pvfs2-types.h"

#endif
