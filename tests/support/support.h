/* support.h - everything a test includes: cmocka with what it needs before it, the public header, and the helpers. */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "lacuna.h"

#include "support/allocator.h"
#include "support/check.h"
#include "support/comma.h"
#include "support/folder.h"
#include "support/generate.h"
#include "support/header.h"
#include "support/matrix.h"
#include "support/random.h"
#include "support/table.h"
#include "support/timed.h"
#include "support/world.h"

#endif
