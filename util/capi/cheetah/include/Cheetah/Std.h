// Serialisation of the standard library's strings and vectors, for programs that do not bring their
// own. Not part of Cheetah.h, because many do.

#ifndef CHEETAH_STD_H
#define CHEETAH_STD_H

#include <string>
#include <vector>

#include "Cheetah.h"

namespace Cheetah {

// Characters. The string is constructed when it is unpacked, and destroyed by cleanup().
template <> class Serialize<CHEETAH, std::string> {
public:
    static int size(const std::string &text)
    {
        int len = static_cast<int>(text.size());
        return Serialize<ARRAY, char>::size(0, len);
    }
    static int pack(const std::string &text, char *buffer)
    {
        return Serialize<ARRAY, char>::pack(text.data(), buffer, static_cast<int>(text.size()));
    }
    static int unpack(std::string *&text, char *buffer)
    {
        char *first;
        int len;
        int used = Serialize<ARRAY, char>::unpack(first, buffer, len);
        text = new std::string(first, static_cast<size_t>(len));
        return used;
    }
    static void cleanup(std::string *text) { delete text; }
};

// Elements one behind the other, each with its own Serialize.
template <class T> class Serialize<CHEETAH, std::vector<T> > {
public:
    static int size(const std::vector<T> &values)
    {
        int all = 8;
        for (size_t i = 0; i < values.size(); ++i)
            all += Serialize<CHEETAH, T>::size(values[i]);
        return all;
    }
    static int pack(const std::vector<T> &values, char *buffer)
    {
        char *at = buffer;
        at += Serialize<CHEETAH, int>::pack(static_cast<int>(values.size()), at);
        for (size_t i = 0; i < values.size(); ++i)
            at += Serialize<CHEETAH, T>::pack(values[i], at);
        return static_cast<int>(at - buffer);
    }
    static int unpack(std::vector<T> *&values, char *buffer)
    {
        char *at = buffer;
        int *count;
        at += Serialize<CHEETAH, int>::unpack(count, at);
        values = new std::vector<T>();
        values->reserve(static_cast<size_t>(*count));
        for (int i = 0; i < *count; ++i) {
            T *value;
            at += Serialize<CHEETAH, T>::unpack(value, at);
            values->push_back(*value);
            Serialize<CHEETAH, T>::cleanup(value);
        }
        return static_cast<int>(at - buffer);
    }
    static void cleanup(std::vector<T> *values) { delete values; }
};

} // namespace Cheetah

#endif
