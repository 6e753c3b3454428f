/* comma.c - see comma.h. Few machines have such a locale, but the C library's tool makes one of seven lines. */
#include "support/comma.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/folder.h"

bool test_comma_locale(void)
{
    static const char text[] =
        "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n";
    char folder[512], command[640], number[16];
    snprintf(folder, sizeof folder, "%s/locale-XXXXXX", test_folder());
    if (!mkdtemp(folder)) return false;
    snprintf(command, sizeof command, "cd '%s' && cat > comma.txt && localedef -c -i comma.txt -f UTF-8 ./comma > made 2>&1",
             folder);
    FILE *to = popen(command, "w");
    if (to) {
        fputs(text, to);
        pclose(to); /* its warnings make it fail, so that what counts is what it has made */
    }
    setenv("LOCPATH", folder, 1);
    bool made = setlocale(LC_NUMERIC, "comma") != NULL;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    (void)!system(command);
    snprintf(number, sizeof number, "%.1f", 1.5);
    return made && !strcmp(number, "1,5");
}
