#!/bin/sh
# Makes what E2B's own tests need, in the present folder: the tests of a checkout ($1), an environment of Python, a
# certificate for names below `e2b.localhost`, and a container image that has what the tests call, in `layout`.
set -eu
rm -rf tests layout
cp -r "$1/packages/python-sdk/tests" "$1/packages/python-sdk/pytest.ini" .
if [ ! -x venv/bin/pytest ]; then
    python3 -m venv venv
    venv/bin/pip install --quiet e2b pytest pytest-asyncio pytest-timeout pytest-xdist python-dotenv
fi
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key.pem -out cert.pem \
    -subj /CN=e2b.localhost -addext 'subjectAltName=DNS:*.e2b.localhost,IP:127.0.0.1' \
    -addext basicConstraints=critical,CA:FALSE 2> /dev/null
chmod 600 key.pem
if [ ! -f tree.tar ]; then
    apt-config dump Acquire > apt.conf
    mmdebstrap --quiet --mode=root --variant=minbase --format=tar --aptopt=apt.conf \
        --include=python3,python-is-python3,curl,ca-certificates,sudo,ncurses-bin,procps,git,iproute2 \
        --customize-hook='chroot "$1" useradd --create-home --shell /bin/bash user' \
        --customize-hook='echo "user ALL=(ALL) NOPASSWD:ALL" > "$1/etc/sudoers.d/user"' trixie made.tar
    mv made.tar tree.tar
fi
umoci init --layout layout
umoci new --image layout:suite
umoci raw add-layer --image layout:suite tree.tar
