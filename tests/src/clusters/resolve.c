/* resolve NAME [PORT]: prints the addresses that the C library returns for a name, one on each line; with a port, then connects
 * to the first one that lets it, and prints which one that was. Ends with 2 where the name has no address. */
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static void show(const char *word, const struct addrinfo *one)
{
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
        printf("%s%s\n", word, text);
}

int main(int count, char **words)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all;
    int code = getaddrinfo(words[1], count > 2 ? words[2] : NULL, &hints, &all);
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", words[1], gai_strerror(code));
        return code == EAI_NONAME ? 2 : 1;
    }
    for (struct addrinfo *one = all; one != NULL; one = one->ai_next)
        show("", one);
    for (struct addrinfo *one = all; count > 2 && one != NULL; one = one->ai_next) {
        int connection = socket(one->ai_family, one->ai_socktype, 0);
        if (connect(connection, one->ai_addr, one->ai_addrlen) == 0) {
            show("reached ", one);
            return 0;
        }
        close(connection);
    }
    return count > 2;
}
