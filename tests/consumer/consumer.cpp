/* consumer.cpp - the same program as C++: lacuna.h must be clean there too. */
#include "consumer.c"
